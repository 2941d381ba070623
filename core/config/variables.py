"""Environment variables that a configuration may set (`device.environment`).

An allow-list, because a configuration may come from somebody else. Other variables could name programs, libraries,
start-up files or folders of settings for this process or for a program that it starts. The listed variables name no
file, folder, library or host.
"""

from __future__ import annotations

import re

_NAMES = (
    # which devices a process sees
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_MODULE_LOADING", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("ONEAPI_DEVICE_SELECTOR", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"),
    # memory and kernels of PyTorch and JAX
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    *("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO", "PYTORCH_ENABLE_MPS_FALLBACK"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG"),
    *("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "PJRT_DEVICE"),
    # threads
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OMP_DYNAMIC", "OMP_WAIT_POLICY"),
    *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_CBWR", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY"),
)  # fmt: skip
# NCCL and Gloo between processes, except what names a file, a plug-in or an address (NCCL_NET_PLUGIN, NCCL_CONF_FILE,
# NCCL_TUNER_CONFIG_PATH, NCCL_COMM_ID, ...).
_NCCL = re.compile(
    r"(?:NCCL_(?:DEBUG(?:_SUBSYS)?|ALGO|PROTO|NTHREADS|BUFFSIZE|SOCKET_(?:IFNAME|FAMILY|NTHREADS)|NSOCKS_PERTHREAD"
    r"|(?:P2P|SHM|IB|NVLS|CUMEM)_(?:DISABLE|ENABLE|LEVEL|HCA|TIMEOUT|RETRY_CNT|GID_INDEX|TC|SL)|NET_GDR_LEVEL"
    r"|(?:MIN|MAX)_(?:NCHANNELS|CTAS)|LAUNCH_MODE|CROSS_NIC|IGNORE_CPU_AFFINITY|BLOCKING_WAIT|ASYNC_ERROR_HANDLING)"
    r"|TORCH_NCCL_(?:BLOCKING_WAIT|ASYNC_ERROR_HANDLING|AVOID_RECORD_STREAMS)|GLOO_SOCKET_IFNAME)"
)


def may_be_set(name: str) -> bool:
    """Whether a configuration may set the environment variable `name`."""
    return name in _NAMES or _NCCL.fullmatch(name) is not None
