"""For each alert the series with which it fires, and those of a healthy cluster with which it does not.

The notation is promtool's: `0+1x9` counts up from 0 by 1 at each minute, `_x20` has no sample for 20 minutes.
A step of STEPS is longer.
"""

POOL = 'node="n1",pool="notebooks"'
RUNTIME = f'gpushare_build_info{{{POOL},version="0.1.0",nvml="",driver=""}}'
OURS = 'namespace="gpu-system",pod="gpushare-notebooks-x"'
BY_US = 'created_by_kind="DaemonSet",created_by_name="gpushare-notebooks",node="n1"'
POD = f"kube_pod_info{{{OURS},{BY_US}}}"
POD_READY = f'kube_pod_status_ready{{{OURS},condition="true"}}'
READY = 'kube_daemonset_status_number_ready{namespace="gpu-system",daemonset="gpushare-notebooks"}'
WANTED = 'kube_daemonset_status_desired_number_scheduled{namespace="gpu-system",daemonset="gpushare-notebooks"}'
STARTED = f"gpushare_start_time_seconds{{{POOL}}}"
CONDITION = 'kube_node_status_condition{condition="GPUShareReady",status="true",node="n1"}'
SHARES = 'kube_node_status_allocatable{resource="nvidia_com_gpu_shared",node="n1"}'
ASKED = 'kube_pod_container_resource_requests{resource="nvidia_com_gpu_shared",namespace="a",pod="p",node="n1"}'
PHASE = 'kube_pod_status_phase{namespace="a",pod="p",phase="Running"}'
QUOTA = 'kube_resourcequota{resourcequota="gpushare",namespace="a",resource="requests.nvidia.com/gpu.shared",type='
RESTARTS = "kube_pod_container_status_restarts_total"
DAEMON = 'namespace="gpu",pod="mps-1"'
ON_NODE = f'kube_pod_info{{{DAEMON},node="n1"}}'
MPS = f'{DAEMON},container="mps-control-daemon-ctr"'
TENANT = 'namespace="a",pod="p",container="c",gpu="GPU-1"'

Series = dict[str, str]


def kills(outcome: str) -> str:
    """The runtime's counter of ended processes with this outcome."""
    return f'gpushare_kills_total{{{POOL},signal="SIGKILL",outcome="{outcome}",reason="over-cap"}}'


def denials(policy: str) -> str:
    """The API server's counter of what an admission policy has denied."""
    return f'apiserver_validating_admission_policy_check_total{{policy="{policy}",enforcement_action="deny"}}'


def reason(word: str) -> str:
    """The runtime's gauge with this reason."""
    return f'gpushare_node_condition{{{POOL},reason="{word}"}}'


def of_cluster(name: str, series: str) -> str:
    """The series as a ruler of several clusters has it."""
    return series.replace("{", f'{{cluster="{name}",', 1)


ROWS = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{UUID="GPU-1",Hostname="n1"'
LONG = "x240"
WEEK = "x2400"
STEPS = {"GPUSharePoolIdle": "5m"}

CASES: dict[str, tuple[str, Series, str, tuple[Series, ...]]] = {
    # Such a node waits, for its tenants or because its driver hangs: what serves the metrics has not started.
    "GPUShareNodeNotReady": (
        "45m",
        {CONDITION: f"0{LONG}", POD: f"1{LONG}"},
        "n1",
        (
            {CONDITION: f"1{LONG}", POD: f"1{LONG}"},
            {CONDITION: f"0{LONG}", POD: f"1{LONG}", reason("Observing"): f"1{LONG}"},
            {CONDITION: f"0{LONG}"},
            {CONDITION: "0x20 1x220", POD: f"1{LONG}"},
            {CONDITION: f"0{LONG}", POD.replace("gpu-system", "elsewhere"): f"1{LONG}"},
            # Nodes of equal names in two clusters, of which one observes.
            {
                of_cluster("a", CONDITION): f"1{LONG}",
                of_cluster("a", POD): f"1{LONG}",
                of_cluster("b", CONDITION): f"0{LONG}",
                of_cluster("b", POD): f"1{LONG}",
                of_cluster("b", reason("Observing")): f"1{LONG}",
            },
        ),
    ),
    "GPUShareRolloutStuck": (
        "3h",
        {READY: f"1{LONG}", WANTED: f"2{LONG}"},
        "gpushare-notebooks",
        (
            {READY: f"2{LONG}", WANTED: f"2{LONG}"},
            {READY.replace("notebooks", "release"): f"0{LONG}", WANTED.replace("notebooks", "release"): f"1{LONG}"},
            {READY.replace("gpu-system", "kube-system"): f"0{LONG}", WANTED.replace("gpu-system", "kube-system"): f"1{LONG}"},
        ),
    ),
    "GPUShareMetricsMissing": (
        "45m",
        {POD: f"1{LONG}", POD_READY: f"1{LONG}", RUNTIME.replace("n1", "n2"): f"1{LONG}"},
        "scrape 1 pods",
        (
            {POD: f"1{LONG}", POD_READY: f"1{LONG}", RUNTIME: f"1{LONG}"},
            {POD: f"1{LONG}", POD_READY: f"0{LONG}"},
            {POD.replace("gpu-system", "kube-system"): f"1{LONG}", POD_READY.replace("gpu-system", "kube-system"): f"1{LONG}"},
        ),
    ),
    "GPUShareRuntimeNotReady": (
        "30m",
        {POD: "1x60", POD_READY: "0x60", CONDITION: "1x60"},
        "gpushare-notebooks-x",
        (
            {POD: "1x60", POD_READY: "1x60", CONDITION: "1x60"},
            {POD: "1x60", POD_READY: "0x60", CONDITION: "0x60"},
            {POD: "1x60", POD_READY: "0x10 1x50", CONDITION: "1x60"},
        ),
    ),
    "GPUShareContainerOverCap": (
        "15m",
        {f"gpushare_container_over_cap{{{POOL},{TENANT}}}": "1x60"},
        "a/p/c",
        ({f"gpushare_container_over_cap{{{POOL},{TENANT}}}": "1x5 0x60"},),
    ),
    "GPUShareKills": (
        "25m",
        {kills("exited_kill"): "_x20 1x60", RUNTIME: "1x60"},
        "n1",
        (
            {kills("exited_kill"): "3x60", RUNTIME: "1x60"},
            {kills("eperm"): "_x20 1x60", RUNTIME: "1x60"},
            # Not scraped for a while, and not scraped before.
            {kills("exited_kill"): "1x4 _x18 1x60", RUNTIME: "1x4 _x18 1x60"},
            {kills("exited_kill"): "_x20 1x60", RUNTIME: "_x20 1x60"},
            {kills("exited_kill"): "_x20 1x60", RUNTIME: "_x20 1x60", STARTED: "_x20 -36000x60"},
        ),
    ),
    "GPUShareKillBreakerOpen": (
        "10m",
        {f"gpushare_kill_breaker_open{{{POOL}}}": "1x60"},
        "n1",
        ({f"gpushare_kill_breaker_open{{{POOL}}}": "0x60"},),
    ),
    # A runtime that starts again and again is seen a minute each time.
    "GPUShareEnforcementBlind": (
        "40m",
        {reason("DriverHung"): "1 _x5 " * 10},
        "DriverHung",
        (
            {reason("GpuLost"): "1x60"},
            {reason("DriverHung"): "0x38 1"},
            {reason("DriverHung"): "0x28 1 0x20"},
        ),
    ),
    "GPUShareGpuLost": ("10m", {reason("GpuLost"): "1x60"}, "GpuLost", ({reason("Ready"): "1x60"},)),
    "GPUShareXid": (
        "30m",
        {f'gpushare_xid_total{{{POOL},xid="79"}}': "1x20 2x60"},
        "XID 79",
        (
            {f'gpushare_xid_total{{{POOL},xid="13"}}': "0+1x60", RUNTIME: "1x60"},
            {f'gpushare_xid_total{{{POOL},xid="79"}}': "2x60", RUNTIME: "1x60"},
            {f'gpushare_xid_total{{{POOL},xid="79"}}': "2x4 _x20 2x60", RUNTIME: "1x4 _x20 1x60"},
        ),
    ),
    "GPUShareRowRemapFailure": (
        "10m",
        {f'{ROWS},exported_pod="p"}}': "1x60"},
        "node n1",
        ({'DCGM_FI_DEV_ROW_REMAP_FAILURE{UUID="GPU-1"}': "0x60"},),
    ),
    "GPUShareMemoryUnattributed": (
        "30m",
        {f'gpushare_gpu_memory_unattributed_bytes{{{POOL},gpu="GPU-1"}}': "2147483648x60"},
        "2GiB",
        ({f'gpushare_gpu_memory_unattributed_bytes{{{POOL},gpu="GPU-1"}}': "1073741824x5"},),
    ),
    "GPUShareStrayContainer": (
        "15m",
        {f'gpushare_gpu_stray_containers{{{POOL},gpu="GPU-1"}}': "2x60"},
        "2 containers",
        ({f'gpushare_gpu_stray_containers{{{POOL},gpu="GPU-1"}}': "0x60"},),
    ),
    "GPUShareOrphanMemory": (
        "30m",
        {f'gpushare_gpu_orphan_processes{{{POOL},gpu="GPU-1"}}': "3x60"},
        "3 processes",
        ({f'gpushare_gpu_orphan_processes{{{POOL},gpu="GPU-1"}}': "1x5 0x60"},),
    ),
    "GPUShareFenceDenied": (
        "30m",
        {denials("gpushare-fence"): "0x20 1x40"},
        "gpushare-fence",
        (
            {denials("gpushare-pods"): "0x20 1x40"},
            {denials("gpushare-fence"): "7x60"},
            {f'gpushare_api_denials_total{{{POOL},policy="gpushare-pods"}}': "0x20 1x40"},
        ),
    ),
    "GPUShareCapsUnknown": (
        "30m",
        {f"gpushare_caps_unknown{{{POOL}}}": "2x60"},
        "has 2 allocations",
        ({f"gpushare_caps_unknown{{{POOL}}}": "0x60"},),
    ),
    "GPUShareMpsLimitMismatch": (
        "30m",
        {f'gpushare_mps_limit_mismatch{{{POOL},gpu="GPU-1"}}': "1x60"},
        "GPU-1",
        ({f'gpushare_mps_limit_mismatch{{{POOL},gpu="GPU-1"}}': "0x60"},),
    ),
    "GPUShareMpsDaemonRestarts": (
        "30m",
        {f"{RESTARTS}{{{MPS}}}": "0x20 1x60", ON_NODE: "1x90"},
        "n1",
        (
            {f"{RESTARTS}{{{MPS}}}": "3x90", ON_NODE: "1x90"},
            {f'{RESTARTS}{{{DAEMON},container="other"}}': "0+1x90", ON_NODE: "1x90"},
        ),
    ),
    "GPUSharePoolExhausted": (
        "2h",
        {SHARES: f"1{LONG}", RUNTIME: f"1{LONG}", ASKED: f"1{LONG}", PHASE: f"1{LONG}"},
        "1 shares of pool notebooks",
        (
            {SHARES: f"2{LONG}", RUNTIME: f"1{LONG}", ASKED: f"1{LONG}", PHASE: f"1{LONG}"},
            {SHARES: f"1{LONG}", RUNTIME: f"1{LONG}", ASKED: f"1{LONG}", PHASE: f"0{LONG}"},
            {SHARES: f"0{LONG}", RUNTIME: f"1{LONG}"},
            # Two clusters with a pool of one name: neither's shares are the other's.
            {
                of_cluster(one, series): f"{value}{LONG}"
                for one in ("a", "b")
                for series, value in ((SHARES, 2), (RUNTIME, 1), (ASKED, 1), (PHASE, 1))
            },
        ),
    ),
    "GPUShareQuotaExhausted": (
        "2h",
        {f'{QUOTA}"used"}}': f"4{LONG}", f'{QUOTA}"hard"}}': f"4{LONG}"},
        "Namespace a",
        (
            {f'{QUOTA}"used"}}': f"3{LONG}", f'{QUOTA}"hard"}}': f"4{LONG}"},
            {f'{QUOTA}"used"}}': f"0{LONG}", f'{QUOTA}"hard"}}': f"0{LONG}"},
        ),
    ),
    "GPUSharePoolIdle": (
        "190h",
        {f'gpushare_gpu_processes{{{POOL},gpu="GPU-1"}}': f"0{WEEK}"},
        "pool notebooks",
        (
            {f'gpushare_gpu_processes{{{POOL},gpu="GPU-1"}}': "0x1200 1 0x1200"},
            {f'gpushare_gpu_processes{{{POOL},gpu="GPU-1"}}': "_x1000 0x1400"},
        ),
    ),
}
"""By alert: when it is looked at, with what it fires, what its summary has, and with what it must not fire."""
