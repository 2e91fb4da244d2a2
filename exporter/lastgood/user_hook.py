"""Find a communication hook that the user registered, and measure inside it where it averages without loss.

A hook can be registered only once and sees the gradients before anybody else. To stand around it, the wrapper's reducer
is built anew, as the wrapper itself does when it is unpickled. That part of torch is private: where it has changed, the
hook stays as it is and conservation does not run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch.nn.parallel import DistributedDataParallel

STOCK: Final = "torch.distributed.algorithms.ddp_comm_hooks."
AVERAGES: Final = frozenset({f"{STOCK}default_hooks.allreduce_hook"})
"""Hooks of torch whose result is the plain average."""
DRIFTS: Final = frozenset({f"{STOCK}post_localSGD_hook.post_localSGD_hook", f"{STOCK}debugging_hooks.noop_hook"})
"""Hooks of torch that let healthy replicas differ."""

Hook = Callable[[Any, Any], Any]


def name_of(ddp: DistributedDataParallel) -> str:
    """Return the name of the hook that is registered on a wrapper; empty when there is none.

    The wrapper does not list those that are built into torch; its logger knows them.
    """
    wrapper: Any = ddp
    if ddp._comm_hooks:
        hook = ddp._comm_hooks[0][0]
        return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}"
    try:
        return str(wrapper._get_ddp_logging_data().get("comm_hook", ""))
    except Exception:  # private: without it, registering our own hook says whether there is one
        return ""


def is_lossless(ddp: DistributedDataParallel, promised: bool) -> bool:
    """Tell whether the registered hook returns the average: one of torch that is known to, or by the user's word."""
    return len(ddp._comm_hooks) == 1 and (promised or name_of(ddp) in AVERAGES)


def limits(ddp: DistributedDataParallel, promised: bool) -> dict[str, str]:
    """Return check -> why it cannot run under the registered hook."""
    name = name_of(ddp)
    out: dict[str, str] = {}
    if name and not is_lossless(ddp, promised):
        out["conservation"] = "the job has a communication hook of its own"
    if name in DRIFTS:
        out |= dict.fromkeys(("replica", "replay"), "the communication hook lets the replicas differ")
    return out


def take_over(ddp: DistributedDataParallel) -> tuple[Hook, Any] | None:
    """Take the user's hook off the wrapper, so that another can be registered; return it with its state.

    Before the first backward. Returns None, and leaves everything as it was, where this torch cannot do it.
    """
    wrapper: Any = ddp
    hook, state = wrapper._comm_hooks[0]
    old, logger = wrapper.reducer, wrapper.logger
    try:
        parameters, sparse = wrapper._build_params_for_reducer()
        names = wrapper._build_debug_param_to_name_mapping(parameters)
        wrapper._ddp_init_helper(parameters, sparse, names, wrapper.static_graph)
        if wrapper.static_graph:
            wrapper.reducer._set_static_graph()
            wrapper.logger._set_static_graph()
        old._remove_autograd_hooks()
    except Exception:
        wrapper.reducer, wrapper.logger = old, logger
        return None
    wrapper._comm_hooks.clear()
    return hook, state
