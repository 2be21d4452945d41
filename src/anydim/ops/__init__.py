"""The operator library: importing it fills the registry of `anydim.graph.operator`.

In come definitions in the language (`.tc`) and rows that write some; out go records of operators,
from which size rules, meanings, lowerings and tests come.
"""

from anydim.graph.operator import register
from anydim.ops.definition_index import scan
from anydim.ops.records import RECORDS
from anydim.ops.routines import ROUTINES

for _record in (*scan(), *RECORDS, *ROUTINES):
    register(_record)
