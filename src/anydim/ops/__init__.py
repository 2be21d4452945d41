"""The operator library: importing it fills the registry of `anydim.graph.operator`.

The definitions in the language (`.tc`) and the writer functions become operator records. Size
rules, reference meanings, lowerings and tests derive from those records.
"""

from anydim.graph.operator import register
from anydim.ops.definition_index import scan
from anydim.ops.records import RECORDS
from anydim.ops.routines import ROUTINES

for _record in (*scan(), *RECORDS, *ROUTINES):
    register(_record)
