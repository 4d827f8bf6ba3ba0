"""The public names of the testing kit, for type checkers; ``__init__.py`` loads the same names lazily."""

from . import faults as faults
from .assistant_answers import AnswerStyle as AnswerStyle
from .customers import Customer as Customer
from .docs_index import DocsIndex as DocsIndex
from .faults import Close as Close
from .faults import Cut as Cut
from .faults import Fault as Fault
from .faults import NoAnswer as NoAnswer
from .faults import Raw as Raw
from .faults import Reset as Reset
from .http_answer import Answer as Answer
from .http_answer import Pause as Pause
from .local_jobs import JobLife as JobLife
from .local_jobs import LocalJob as LocalJob
from .local_service import LocalService as LocalService
from .local_threads import LocalThread as LocalThread
from .local_threads import ThreadStyle as ThreadStyle
from .loop_time import VirtualTime as VirtualTime
from .loop_time import virtual_time as virtual_time
from .rate_limits import Limits as Limits
from .recorder import Recorder as Recorder
from .request_log import RecordedRequest as RecordedRequest
from .request_log import RequestLog as RequestLog
from .script import Rule as Rule
from .script import Script as Script
