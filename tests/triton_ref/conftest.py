"""The kernels run in Triton's interpreter here, which has to be chosen before they are decorated."""

import os

os.environ["TRITON_INTERPRET"] = "1"
