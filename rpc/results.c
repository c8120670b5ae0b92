/* SPDX-License-Identifier: BSD-3-Clause */
/* What methods answer. One table: shapes are read, compared and changed together, and clients are written against them.
 *
 * int, string, bool, null, any; {key: shape}, with key? for what may be missing, *: for keys that are names of
 * something, and ... where there may be more; [shape]; alternatives by |. An int beyond 2^63 - 1 is a string "0x...".
 * systest/rpc_results.py holds answers against it. */
#include <stdlib.h>
#include <string.h>

#include "rpc/registry.h"

#define ADDRESS "{trtype: string, adrfam: string, traddr: string, trsvcid: string}"
#define TRID    "{trtype: string, adrfam?: string, traddr: string, trsvcid?: string, subnqn?: string}"
#define POLLERS                                                                                                        \
	"[{name: string, id: int, state: string, run_count: int, busy_count: int, ticks?: int, "                       \
	"period_ticks?: int}]"
#define IOSTAT                                                                                                         \
	"bytes_read: int, num_read_ops: int, read_latency_ticks: int, max_read_latency_ticks: int, "                   \
	"min_read_latency_ticks: int, "                                                                                \
	"bytes_written: int, num_write_ops: int, write_latency_ticks: int, max_write_latency_ticks: int, "             \
	"min_write_latency_ticks: "                                                                                    \
	"int, bytes_unmapped: int, num_unmap_ops: int, unmap_latency_ticks: int, max_unmap_latency_ticks: "            \
	"int, "                                                                                                        \
	"min_unmap_latency_ticks: int, bytes_copied: int, num_copy_ops: int, copy_latency_ticks: int, "                \
	"max_copy_latency_ticks: int, "                                                                                \
	"min_copy_latency_ticks: int, io_error: {*: any}, in_flight: int, num_nomem_waits: int, "                      \
	"num_qos_waits: int, num_split_waits: int"
#define POOL "{cache: int, main: int, retry: int}"

/* Sorted by name. */
static const struct result {
	const char *method, *shape;
} results[] = {
	{"appliance_get_state", "{state: string, age_us: int, pid: int, version: string, build_id: string, "
				"config_file: string|null, rpc_socket: string, "
				"trace_file: string|null, hugepages: bool, poll_mode: string, ...}"},
	{"bdev_aio_create", "string"},
	{"bdev_aio_delete", "true"},
	{"bdev_aio_rescan", "true"},
	{"bdev_delay_create", "string"},
	{"bdev_delay_delete", "true"},
	{"bdev_delay_update_latency", "true"},
	{"bdev_enable_histogram", "true"},
	{"bdev_error_create", "true|string"},
	{"bdev_error_delete", "true"},
	{"bdev_error_inject_error", "true"},
	{"bdev_error_resume_pending", "true"},
	{"bdev_examine", "true"},
	{"bdev_get_bdevs", "[{name: string, aliases: [string], product_name: string, block_size: int, "
			   "physical_block_size: int, num_blocks: int, uuid: string, numa_id: int, "
			   "assigned_rate_limits: {rw_ios_per_sec: int, rw_mbytes_per_sec: int, "
			   "r_mbytes_per_sec: int, w_mbytes_per_sec: int}, md_size?: int, md_interleave?: bool, "
			   "dif_type?: int, dif_is_head_of_md?: bool, enabled_dif_check_types?: {reftag: bool, "
			   "apptag: bool, guard: bool}, dif_pi_format?: int, claimed: bool, "
			   "claim_type?: string, claimed_by?: string, zoned: bool, supported_io_types: {*: "
			   "bool}, state: string, state_us: int, driver_specific: {*: any}, "
			   "...}]"},
	{"bdev_get_histogram", "{histogram: string, granularity: int, bucket_shift: int, min_range: int, "
			       "max_range: int, tsc_rate: int}"},
	{"bdev_get_histogram_borders", "{borders: [int], borders_count: [int]}"},
	{"bdev_get_inflight", "[{name: string, inflight: [{...}]}]"},
	{"bdev_get_iostat", "{tick_rate: int, ticks: int, bdevs: [{name: string, " IOSTAT
			    ", driver_specific?: {*: any}, ...}]}|{tick_rate: int, ticks: int, name: string, "
			    "channels: [{thread_id: int, " IOSTAT ", ...}]}"},
	{"bdev_malloc_create", "string"},
	{"bdev_malloc_delete", "true"},
	{"bdev_null_create", "string"},
	{"bdev_null_delete", "true"},
	{"bdev_null_resize", "true"},
	{"bdev_nvme_add_error_injection", "true"},
	{"bdev_nvme_attach_controller", "[string]"},
	{"bdev_nvme_detach_controller", "true"},
	{"bdev_nvme_get_controller_health_info",
	 "{model_number: string, serial_number: string, firmware_revision: string, traddr: string, critical_warning: "
	 "int, "
	 "temperature_celsius: int, available_spare_percentage: int, available_spare_threshold_percentage: int, "
	 "percentage_used: int, data_units_read: int, data_units_written: int, host_read_commands: int, "
	 "host_write_commands: int, controller_busy_time: int, power_cycles: int, power_on_hours: int, "
	 "unsafe_shutdowns: int, "
	 "media_errors: int, num_err_log_entries: int, warning_temperature_time_minutes: int, "
	 "critical_composite_temperature_time_minutes: int, ...}"},
	{"bdev_nvme_get_controllers",
	 "[{name: string, ctrlrs: [{state: string, state_us: int, trid: {trtype: string, traddr: string, "
	 "...}, cntlid: int, host: {nqn: string, addr: "
	 "string, svcid: string}, driver_state: string, driver_state_us: int, last_error: string, resets: "
	 "int, io_queues: int, bdevs: [string], "
	 "queue_pairs: [{thread: string, qid: int, outstanding: int, waiting: int, ...}], ...}], ...}]"},
	{"bdev_nvme_get_discovery_info",
	 "[{name: string, trid?: " TRID ", state?: string, last_error?: string|null, referrals: [{trid: " TRID
	 ", state: string}], "
	 "entries: [{trid: " TRID ", controller: string|null, state: string}], ...}]"},
	{"bdev_nvme_get_io_paths", "{poll_groups: [{thread: string, io_paths: [{bdev_name: string, cntlid: int, "
				   "current: bool, connected: bool, accessible: bool, "
				   "preferred: bool, ana_state?: string, transport: " TRID ", ...}]}]}"},
	{"bdev_nvme_get_transport_statistics",
	 "{poll_groups: [{thread: string, transports: [{trname: string, devices: [{dev_name: string, qid: "
	 "int, polls: int, idle_polls: int, completions: "
	 "int, queued_requests: int, retries: int, ...}]}]}]}"},
	{"bdev_nvme_remove_error_injection", "true"},
	{"bdev_nvme_reset_controller", "true"},
	{"bdev_nvme_send_cmd", "{cpl: string, data?: string, metadata?: string}"},
	{"bdev_nvme_set_hotplug", "true"},
	{"bdev_nvme_set_keys", "true"},
	{"bdev_nvme_set_multipath_policy", "true"},
	{"bdev_nvme_set_options", "true"},
	{"bdev_nvme_set_preferred_path", "true"},
	{"bdev_nvme_start_discovery", "true"},
	{"bdev_nvme_stop_discovery", "true"},
	{"bdev_reset_iostat", "true"},
	{"bdev_set_options", "true"},
	{"bdev_set_qd_sampling_period", "true"},
	{"bdev_set_qos_limit", "true"},
	{"bdev_set_timeout", "true"},
	{"bdev_uring_create", "string"},
	{"bdev_uring_delete", "true"},
	{"bdev_uring_rescan", "true"},
	{"bdev_wait_for_examine", "true"},
	{"env_dpdk_get_mem_stats",
	 "{filename: string, hugepages: bool, resident_bytes: int, dma_bytes: int, heap_bytes: int, "
	 "heap_free_bytes: int, heap_largest_free_bytes: int, "
	 "heap_blocks: int, mapped_bytes: int, mapped_blocks: int, regions: int, ...}"},
	{"framework_get_config", "[{method: string, params?: {*: any}}]"},
	{"framework_get_pci_devices", "[{address: string, vendor_id: string, device_id: string, subvendor_id: string, "
				      "subdevice_id: string, class: string, "
				      "driver: string|null, numa_node: int, iommu_group: int, ...}]"},
	{"framework_get_reactors", "{tick_rate: int, pid: int, reactors: [{lcore: int, tid: int, busy: int, "
				   "idle: int, in_interrupt: bool, irq: int, sys: int, sleeps?: int, "
				   "lw_threads: [{name: string, id: int, cpumask: string, elapsed: int}]}]}"},
	{"framework_get_scheduler", "{scheduler_name: string, scheduler_period: int}"},
	{"framework_get_subsystems", "[{subsystem: string, depends_on: [string]}]"},
	{"framework_start_init", "true"},
	{"framework_wait_init", "true"},
	{"iobuf_get_stats", "[{module: string, small_pool: " POOL ", large_pool: " POOL ", ...}]"},
	{"iobuf_set_options", "true"},
	{"keyring_file_add_key", "true"},
	{"keyring_file_remove_key", "true"},
	{"keyring_get_keys",
	 "[{name: string, module: string, removed: bool, probed: bool, refcnt: int, path: string}]"},
	{"log_clear_flag", "true"},
	{"log_enable_timestamps", "true"},
	{"log_get_flags", "{*: bool}"},
	{"log_get_level", "string"},
	{"log_get_print_level", "string"},
	{"log_set_flag", "true"},
	{"log_set_level", "true"},
	{"log_set_print_level", "true"},
	{"metrics_get_status", "{address: string|null, connections: int, requests: int, scrapes: int, "
			       "refused: int, dropped: int, ...}"},
	{"metrics_start", "string"},
	{"metrics_stop", "true"},
	{"notify_get_notifications", "[{type: string, ctx: string, id: int, time_us: int, reason?: string}]"},
	{"notify_get_types", "[string]"},
	{"nvmf_create_subsystem", "true"},
	{"nvmf_create_target", "string"},
	{"nvmf_create_transport", "true"},
	{"nvmf_delete_subsystem", "true"},
	{"nvmf_delete_target", "true"},
	{"nvmf_discovery_add_referral", "true"},
	{"nvmf_discovery_get_referrals", "[{address: " ADDRESS ", secure_channel: bool, subnqn: string}]"},
	{"nvmf_discovery_remove_referral", "true"},
	{"nvmf_get_inflight",
	 "[{hostnqn: string, subnqn: string, cntlid: int, qid: int, cid: int, opcode: int, command: string, "
	 "nsid: int, lba: int, num_blocks: int, state: "
	 "string, state_us: int, waits_for: string|null, age_us: int, object: string, ...}]"},
	{"nvmf_get_stats", "{tick_rate: int, poll_groups: [{name: string, admin_qpairs: int, io_qpairs: int, "
			   "current_admin_qpairs: int, current_io_qpairs: int, "
			   "pending_bdev_io: int, completed_nvme_io: int, failed_nvme_io: int, transports: "
			   "[{trtype: string, pending_data_buffer: int, group_bytes: int, "
			   "connections: int, connection_bytes: int, devices: [{name: string, polls: int, "
			   "idle_polls: int, completions: int, requests: int, "
			   "request_latency: int, pending_free_request: int, pending_rdma_read: int, "
			   "pending_rdma_write: int, total_send_wrs: int, "
			   "send_doorbell_updates: int, total_recv_wrs: int, recv_doorbell_updates: int, "
			   "memory_regions: int, registered_bytes: int, ...}], ...}], ...}]}"},
	{"nvmf_get_subsystems",
	 "[{nqn: string, subtype: string, listen_addresses: [" ADDRESS
	 "], allow_any_host: bool, hosts: [{nqn: string, ...}], state: string, state_us: "
	 "int, serial_number?: string, model_number?: string, max_namespaces?: int, min_cntlid?: int, "
	 "max_cntlid?: int, ana_reporting?: bool, "
	 "namespaces?: [{nsid: int, bdev_name: string, name: string, nguid: string, eui64?: string, uuid: "
	 "string, anagrpid: int, ...}], ...}]"},
	{"nvmf_get_targets", "[string]"},
	{"nvmf_get_transports",
	 "[{trtype: string, max_queue_depth: int, max_io_qpairs_per_ctrlr: int, in_capsule_data_size: int, "
	 "max_io_size: int, "
	 "io_unit_size: int, max_aq_depth: int, num_shared_buffers: int, buf_cache_size: int, ...}]"},
	{"nvmf_ns_add_host", "true"},
	{"nvmf_ns_remove_host", "true"},
	{"nvmf_set_config", "true"},
	{"nvmf_set_crdt", "true"},
	{"nvmf_set_max_subsystems", "true"},
	{"nvmf_subsystem_add_host", "true"},
	{"nvmf_subsystem_add_listener", "true"},
	{"nvmf_subsystem_add_ns", "int"},
	{"nvmf_subsystem_allow_any_host", "true"},
	{"nvmf_subsystem_get_controllers",
	 "[{cntlid: int, hostnqn: string, hostid: string, num_io_qpairs: "
	 "int, state: string, state_us: int, kato_ms: "
	 "int, errors: int, auth?: {state: string, digest: string, dhgroup: string}, ...}]"},
	{"nvmf_subsystem_get_listeners",
	 "[{address: " ADDRESS ", ana_states?: [{ana_group: int, ana_state: string}], ...}]"},
	{"nvmf_subsystem_get_qpairs",
	 "[{cntlid: int, qid: int, state: string, state_us: int, thread: string, hostnqn: string, "
	 "listen_address: " ADDRESS ", peer_address: " ADDRESS
	 ", auth?: {state: string, digest: string, dhgroup: string}, ...}]"},
	{"nvmf_subsystem_listener_set_ana_state", "true"},
	{"nvmf_subsystem_remove_host", "true"},
	{"nvmf_subsystem_remove_listener", "true"},
	{"nvmf_subsystem_remove_ns", "true"},
	{"nvmf_subsystem_set_keys", "true"},
	{"nvmf_subsystem_set_ns_ana_group", "true"},
	{"rpc_describe_methods", "[{name: string, help: string, alias?: string, states: [string], params: [{name: "
				 "string, type: string, required: bool, "
				 "help?: string, values?: [string], only?: any, min?: int, max?: int, fields?: [{name: "
				 "string, ...}]}], result: string, ...}]"},
	{"rpc_get_calls", "[{method: string, client: int, age_us: int, timed_out: bool, ...}]"},
	{"rpc_get_methods", "[string]"},
	{"spdk_get_version", "{version: string, fields: {major: int, minor: int, patch: int, suffix: string, ...}}"},
	{"spdk_kill_instance", "true"},
	{"thread_get_io_channels",
	 "{tick_rate: int, threads: [{name: string, id: int, io_channels: [{name: string, ref: int}]}]}"},
	{"thread_get_pollers", "{tick_rate: int, threads: [{name: string, id: int, active_pollers: " POLLERS
			       ", timed_pollers: " POLLERS ", paused_pollers: " POLLERS "}]}"},
	{"thread_get_stats", "{tick_rate: int, threads: [{name: string, id: int, cpumask: string, busy: int, "
			     "idle: int, active_pollers_count: int, timed_pollers_count: int, "
			     "paused_pollers_count: int, lcore?: int|null, timers_count?: int, "
			     "descriptors_count?: int, channels_count?: int, pending_messages?: int}]}"},
	{"thread_set_cpumask", "true"},
	{"trace_clear", "true"},
	{"trace_clear_tpoint_mask", "true"},
	{"trace_disable_tpoint_group", "true"},
	{"trace_enable_tpoint_group", "true"},
	{"trace_get_info",
	 "{tpoint_shm_path: string, tpoint_group_mask: string, *: {mask: string, tpoint_mask: string}}"},
	{"trace_get_stats",
	 "{slots: [{lcore: int, thread: string, attached: bool, num_entries: int, recorded: int, overwritten: int, "
	 "strings_truncated: int}], no_slot: int, threads_refused: int, owner_table_full: int, mask_changes: int, "
	 "off_count: int}"},
	{"trace_get_tpoint_group_mask", "{tpoint_group_mask: string, *: {enabled: bool, mask: string, "
					"tpoint_mask: string, tpoints: [{name: string, "
					"tpoint_id: int, enabled: bool}]}}"},
	{"trace_get_triggers",
	 "{directory: string, max_files: int, max_bytes: int, copies: int, copies_failed: int, copies_missed: int, "
	 "copying: bool, "
	 "frozen: bool, triggers: [{name: string, type: string, limit_us?: int, state?: string, action: string, "
	 "holdoff_us: int, "
	 "fired: int, held_off: int, last_time?: string|null, last_cause?: string, last_file?: string|null}]}"},
	{"trace_remove_trigger", "true"},
	{"trace_set_blackbox", "true"},
	{"trace_set_tpoint_mask", "true"},
	{"trace_set_trigger", "true"},
};

static int compare(const void *name, const void *entry)
{
	return strcmp(name, ((const struct result *)entry)->method);
}

const char *rpc_method_result(const struct rpc_method *m)
{
	const struct result *r =
		bsearch(m->name, results, sizeof(results) / sizeof(results[0]), sizeof(results[0]), compare);

	return r != NULL ? r->shape : NULL;
}
