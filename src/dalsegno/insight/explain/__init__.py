"""Why is it not running? The gates between something and its run, in order, and what opens the first closed one.

Every sentence a person reads about a gate is made here, so that the command line, the API and the console say the
same. `code`, `state` and `data` (with its `reason`, where a gate can be closed in several ways) say it once more for
programs and translators.

| module | what it knows |
|---|---|
| `asked` | what a person may ask about, and which gates stand before it |
| `gate` | what a gate and an explanation are; every gate there is |
| `jobs`, `stages`, `items`, `services`, `nodes` | the gates before each |
| `holds`, `flow` | the gates that several of them share: holds; limits and breakers |
| `outage` | the gate before all others: the database itself |
| `facts` | every read of the database, all in one snapshot |
| `words` | how moments, numbers and lists are said |
"""

from dalsegno.insight.explain.asked import (
    ASKED,
    explain,
    explain_item,
    explain_job,
    explain_node,
    explain_service,
    explain_stage,
    subject_of,
)
from dalsegno.insight.explain.gate import GATES, Explanation, Gate, times_of
from dalsegno.insight.explain.outage import explain_anyway, with_outage
from dalsegno.insight.explain.words import when

__all__ = [
    "ASKED",
    "GATES",
    "Explanation",
    "Gate",
    "explain",
    "explain_anyway",
    "explain_item",
    "explain_job",
    "explain_node",
    "explain_service",
    "explain_stage",
    "subject_of",
    "times_of",
    "when",
    "with_outage",
]
