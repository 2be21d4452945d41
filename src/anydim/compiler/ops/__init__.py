"""The operator library: importing it fills the registry of `anydim.compiler.graph.operator`.

Input: definitions in the language (`.tc`) and functions that write some. Output: operator records,
from which size rules, reference semantics, lowerings and tests derive.
"""

from anydim.compiler.graph.operator import register
from anydim.compiler.ops.definition_index import scan
from anydim.compiler.ops.records import RECORDS
from anydim.compiler.ops.routines import ROUTINES

for _record in (*scan(), *RECORDS, *ROUTINES):
    register(_record)
