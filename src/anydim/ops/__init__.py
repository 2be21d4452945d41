"""The operator library: importing it fills the registry of `anydim.graph.operator`.

Input: definitions in the language (`.tc`) and functions that write some. Output: operator records,
from which size rules, reference semantics, lowerings and tests derive.
"""

from anydim.graph.operator import register
from anydim.ops.definition_index import scan
from anydim.ops.records import RECORDS
from anydim.ops.routines import ROUTINES

for _record in (*scan(), *RECORDS, *ROUTINES):
    register(_record)
