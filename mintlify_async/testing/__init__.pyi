"""The public names of the testing kit, for type checkers; ``__init__.py`` loads the same names lazily."""

from .assistant_answers import AnswerStyle as AnswerStyle
from .connection_faults import Close as Close
from .connection_faults import Cut as Cut
from .connection_faults import Fault as Fault
from .connection_faults import NoAnswer as NoAnswer
from .connection_faults import Raw as Raw
from .connection_faults import Reset as Reset
from .customers import Customer as Customer
from .docs_index import DocsIndex as DocsIndex
from .http_response import Answer as Answer
from .http_response import Pause as Pause
from .local_jobs import JobLife as JobLife
from .local_jobs import LocalJob as LocalJob
from .local_service import LocalService as LocalService
from .local_threads import LocalThread as LocalThread
from .local_threads import ThreadStyle as ThreadStyle
from .rate_limits import Limits as Limits
from .recorder import Recorder as Recorder
from .request_log import RecordedRequest as RecordedRequest
from .request_log import RequestLog as RequestLog
from .scripted_responses import Rule as Rule
from .scripted_responses import Script as Script
from .store_cases import StoreCases as StoreCases
from .store_cases import WireCases as WireCases
from .virtual_clock import VirtualTime as VirtualTime
from .virtual_clock import virtual_time as virtual_time
