/* SPDX-License-Identifier: BSD-3-Clause */
/* The device and its port, and their attributes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

#define DEVICE_PATH "/sys/class/infiniband/" SV_DEVICE_NAME
#define VENDOR_ID   0x005356 /* "SV"; no hardware vendor's */

struct sv_device sv_device = {
	.ibv = {.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = SV_DEVICE_NAME,
		.dev_name = "softverbs",
		.dev_path = "/sys/class/infiniband_verbs/softverbs",
		.ibdev_path = DEVICE_PATH},
};

/* What programs read in the device's sysfs folder, which does not exist. */
static const struct {
	const char *file;
	const char *text;
} g_sysfs[] = {
	{"node_desc", "softverbs: RDMA between processes of one host"},
	{"board_id", "softverbs (shared memory, no hardware)"},
	{"fw_ver", VARVE_VERSION},
	{"hca_type", "softverbs"},
	{"ports/1/pkeys/0", "0xffff"},
};

/* Not in the public headers. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
SV_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[512];
	ssize_t n;
	int fd;

	if (strncmp(dir, DEVICE_PATH, strlen(DEVICE_PATH)) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(g_sysfs); i++) {
			if (strcmp(g_sysfs[i].file, file) == 0) {
				return snprintf(buf, size, "%s", g_sysfs[i].text);
			}
		}
		return -1;
	}
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return -1;
	}
	n = read(fd, buf, size);
	close(fd);
	if (n > 0 && buf[n - 1] == '\n') {
		buf[--n] = '\0';
	}
	return (int)n;
}

SV_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (list != NULL) {
		list[0] = &sv_device.ibv;
	}
	if (num_devices != NULL) {
		*num_devices = list != NULL ? 1 : 0;
	}
	return list;
}

SV_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

SV_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

SV_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return -1; /* the kernel knows nothing of it */
}

/* Locally administered, the same for every process of the host. */
static __be64 device_guid(void)
{
	static const uint8_t bytes[8] = {0x02, 's', 'o', 'f', 't', 'v', 'r', 'b'};
	__be64 value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

SV_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return device_guid();
}

SV_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.node_guid = device_guid(),
		.sys_image_guid = device_guid(),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = VENDOR_ID,
		.vendor_part_id = SV_ARENA_VERSION,
		.hw_ver = 0,
		.max_qp = SV_MAX_QP - 1,
		.max_qp_wr = SV_MAX_WR,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_RESIZE_MAX_WR,
		.max_sge = SV_MAX_SGE,
		.max_sge_rd = SV_MAX_SGE,
		.max_cq = SV_MAX_CQ - 1,
		.max_cqe = 1 << 22,
		.max_mr = SV_MAX_MR - 1,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = SV_MAX_RD_ATOM,
		.max_res_rd_atom = SV_MAX_RD_ATOM * (SV_MAX_QP - 1),
		.max_qp_init_rd_atom = SV_MAX_RD_ATOM,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = SV_MAX_MR - 1,
		.max_srq = SV_MAX_SRQ - 1,
		.max_srq_wr = SV_MAX_WR,
		.max_srq_sge = SV_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", VARVE_VERSION);
	return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex all = {.phys_port_cnt_ex = 1, .max_dm_size = 0};

	ibv_query_device(context, &all.orig_attr);
	memset(attr, 0, attr_size);
	memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t attr_len)
{
	struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = SV_MAX_GIDS,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = SV_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4X */
		.active_speed = 64, /* HDR: a plausible figure; programs only print it */
		.phys_state = 5,    /* link up */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	if (port_num != 1) {
		return EINVAL;
	}
	memset(attr, 0, attr_len);
	memcpy(attr, &all, attr_len < sizeof(all) ? attr_len : sizeof(all));
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr);
SV_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	/* The old form ends where flags and port_cap_flags2 begin. */
	return query_port(context, port_num, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, flags));
}

SV_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	if (port_num != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

SV_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	return port_num == 1 && pkey == 0xffff ? 0 : -1;
}

static void context_fill(struct sv_context *c)
{
	struct verbs_context *v = &c->verbs;

	v->sz = sizeof(*v);
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->create_cq_ex = sv_create_cq_ex;
	v->create_qp_ex = sv_create_qp_ex;
	v->context.device = &sv_device.ibv;
	v->context.cmd_fd = -1;
	v->context.num_comp_vectors = 1;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.ops.poll_cq = sv_poll_cq;
	v->context.ops.req_notify_cq = sv_req_notify_cq;
	v->context.ops.post_send = sv_post_send;
	v->context.ops.post_recv = sv_post_recv;
	v->context.ops.post_srq_recv = sv_post_srq_recv;
	v->context.ops.alloc_mw = sv_alloc_mw;
	v->context.ops.bind_mw = sv_bind_mw;
	v->context.ops.dealloc_mw = sv_dealloc_mw;
	pthread_mutex_init(&v->context.mutex, NULL);
	pthread_mutex_init(&c->lock, NULL);
	TAILQ_INIT(&c->events);
}

struct ibv_context *sv_context_open(void)
{
	struct sv_context *c;
	int rc = sv_process_start();

	if (rc != 0) {
		errno = rc;
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		return NULL;
	}
	context_fill(c);
	c->verbs.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (c->verbs.context.async_fd < 0) {
		free(c);
		return NULL;
	}
	return &c->verbs.context;
}

SV_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return sv_context_open();
}

SV_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct sv_context *c = sv_context(context);
	struct sv_event *e;

	/* As with a real device, a program that closes it while objects exist must not use them any more. Their
	 * memory is freed when the process ends. */
	if (atomic_load(&c->objects) != 0) {
		return 0;
	}
	while ((e = TAILQ_FIRST(&c->events)) != NULL) {
		TAILQ_REMOVE(&c->events, e, link);
		free(e);
	}
	close(context->async_fd);
	free(c);
	return 0;
}

SV_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	errno = EOPNOTSUPP;
	return NULL;
}

SV_EXPORT int ibv_fork_init(void)
{
	return 0; /* memory is neither pinned nor hidden from children; using verbs in a child is not supported */
}

SV_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

SV_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	errno = EOPNOTSUPP; /* only datagrams need address handles */
	return NULL;
}

SV_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
					       uint8_t port_num)
{
	errno = EOPNOTSUPP;
	return NULL;
}

SV_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
				  struct ibv_ah_attr *attr)
{
	errno = EOPNOTSUPP;
	return -1;
}

SV_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	return EOPNOTSUPP;
}

SV_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return EOPNOTSUPP;
}

SV_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return EOPNOTSUPP;
}

SV_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	errno = EOPNOTSUPP;
	return -1;
}
