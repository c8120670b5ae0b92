/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps that open a device, make the objects of a side, and connect two queue pairs without rdma_cm. */
#include "unittest/softverbs/sides.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

struct side me;

static struct side_options with_defaults(struct side_options o)
{
#define DEFAULT(field, value) o.field = o.field != 0 ? o.field : (value)
	DEFAULT(send_wr, 64);
	DEFAULT(recv_wr, 64);
	DEFAULT(send_sge, 4);
	DEFAULT(recv_sge, 4);
	DEFAULT(cqe, 256);
	DEFAULT(srq_wr, 64);
	DEFAULT(timeout, 17);
	DEFAULT(retry, 7);
	DEFAULT(rnr_retry, 7);
	DEFAULT(min_rnr_timer, 1);
	DEFAULT(initiator_depth, 4);
	DEFAULT(responder_depth, 4);
#undef DEFAULT
	o.rnr_retry = o.rnr_retry == 8 ? 0 : o.rnr_retry;
	o.initiator_depth = o.initiator_depth == 255 ? 0 : o.initiator_depth;
	o.responder_depth = o.responder_depth == 255 ? 0 : o.responder_depth;
	return o;
}

/* The GID that stands for the suite's address, as on RoCE; the first one otherwise. */
static int find_gid(void)
{
	struct in_addr ip;
	struct ibv_port_attr port;
	inet_aton(sides_ip(), &ip);
	if (ibv_query_port(me.context, 1, &port) != 0) {
		return -EIO;
	}
	me.lid = port.lid;
	me.mtu = port.active_mtu;
	me.global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	for (int i = 0; i < port.gid_tbl_len && i < 16; i++) {
		if (ibv_query_gid(me.context, 1, i, &me.gid) == 0 && me.gid.raw[10] == 0xff &&
		    memcmp(&me.gid.raw[12], &ip, 4) == 0) {
			me.gid_index = i;
			return 0;
		}
	}
	me.gid_index = 0;
	return ibv_query_gid(me.context, 1, 0, &me.gid) == 0 ? 0 : -EIO;
}

static int open_first_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list == NULL || n == 0) {
		return -ENODEV;
	}
	me.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return me.context == NULL ? -errno : find_gid();
}

bool sides_device_is(const char *prefix)
{
	static char name[64];
	if (name[0] == '\0') {
		int n;
		struct ibv_device **list = ibv_get_device_list(&n);
		if (list != NULL && n > 0) {
			snprintf(name, sizeof(name), "%s", ibv_get_device_name(list[0]));
		}
		if (list != NULL) {
			ibv_free_device_list(list);
		}
	}
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Shared memory where VERBS_SUITE_MEMFD is set, which softverbs moves data through differently. */
static void *map_buffer(void)
{
	if (getenv("VERBS_SUITE_MEMFD") == NULL) {
		return mmap(NULL, SIDE_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	me.memfd = memfd_create("verbs-suite", MFD_CLOEXEC);
	if (me.memfd < 0 || ftruncate(me.memfd, SIDE_BUFFER_BYTES) != 0) {
		return MAP_FAILED;
	}
	return mmap(NULL, SIDE_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, me.memfd, 0);
}

static int register_buffer(void)
{
	int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	access &= ~(int)me.options.no_mr_access;
	if (me.options.mr_is_readonly) {
		access = 0;
	}
	me.buf = map_buffer();
	if (me.buf == MAP_FAILED) {
		return -errno;
	}
	me.mr = ibv_reg_mr(me.pd, me.buf, SIDE_BUFFER_BYTES, access);
	return me.mr == NULL ? -errno : 0;
}

long side_open_device(struct side_options *o)
{
	if (me.context != NULL) { /* a test that failed left it */
		side_close(&(int){0});
	}
	me.options = with_defaults(*o);
	int rc = open_first_device();
	if (rc != 0) {
		return rc;
	}
	me.pd = ibv_alloc_pd(me.context);
	me.channel = ibv_create_comp_channel(me.context);
	if (me.pd == NULL || me.channel == NULL) {
		return -errno;
	}
	me.scq = ibv_create_cq(me.context, me.options.cqe, &me.scq, me.channel, 0);
	me.rcq = ibv_create_cq(me.context, me.options.cqe, &me.rcq, me.channel, 0);
	if (me.scq == NULL || me.rcq == NULL) {
		return -errno;
	}
	if (me.options.srq) {
		struct ibv_srq_init_attr a = {.attr = {.max_wr = me.options.srq_wr, .max_sge = me.options.recv_sge}};
		me.srq = ibv_create_srq(me.pd, &a);
		if (me.srq == NULL) {
			return -errno;
		}
	}
	return register_buffer();
}

void qp_init_attr(struct ibv_qp_init_attr *a, const struct side_options *o)
{
	*a = (struct ibv_qp_init_attr){
		.send_cq = me.scq,
		.recv_cq = me.rcq,
		.srq = me.srq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = o->all_signalled,
		.cap = {.max_send_wr = o->send_wr,
			.max_recv_wr = me.srq == NULL ? o->recv_wr : 0,
			.max_send_sge = o->send_sge,
			.max_recv_sge = me.srq == NULL ? o->recv_sge : 0,
			.max_inline_data = o->inline_bytes},
	};
}

int qp_attr_init(struct ibv_qp_attr *a, const struct side_options *o)
{
	unsigned access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	*a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access & ~o->no_qp_access,
	};
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

int qp_attr_rtr(struct ibv_qp_attr *a, const struct side_options *o, const struct endpoint *other)
{
	*a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = me.mtu < IBV_MTU_1024 ? me.mtu : IBV_MTU_1024,
		.dest_qp_num = other->qpn,
		.rq_psn = other->psn,
		.max_dest_rd_atomic = o->responder_depth,
		.min_rnr_timer = o->min_rnr_timer,
		.ah_attr = {.dlid = other->lid, .port_num = 1, .is_global = me.global},
	};
	if (me.global) {
		a->ah_attr.grh.dgid = other->gid;
		a->ah_attr.grh.sgid_index = (uint8_t)me.gid_index;
		a->ah_attr.grh.hop_limit = 1;
	}
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int qp_attr_rts(struct ibv_qp_attr *a, const struct side_options *o)
{
	*a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = o->timeout,
		.retry_cnt = o->retry,
		.rnr_retry = o->rnr_retry,
		.sq_psn = 0x1234,
		.max_rd_atomic = o->initiator_depth,
	};
	return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
}

int qp_to_init(struct ibv_qp *qp, const struct side_options *o)
{
	struct ibv_qp_attr a;
	int mask = qp_attr_init(&a, o);
	return -ibv_modify_qp(qp, &a, mask);
}

int qp_to_rtr(struct ibv_qp *qp, const struct side_options *o, const struct endpoint *other)
{
	struct ibv_qp_attr a;
	int mask = qp_attr_rtr(&a, o, other);
	return -ibv_modify_qp(qp, &a, mask);
}

int qp_to_rts(struct ibv_qp *qp, const struct side_options *o)
{
	struct ibv_qp_attr a;
	int mask = qp_attr_rts(&a, o);
	return -ibv_modify_qp(qp, &a, mask);
}

long side_create_qp(struct side_options *o)
{
	struct side_options full = with_defaults(*o);
	struct ibv_qp_init_attr a;
	qp_init_attr(&a, &full);
	me.qp = ibv_create_qp(me.pd, &a);
	if (me.qp == NULL) {
		return -errno;
	}
	me.options.inline_bytes = a.cap.max_inline_data;
	return qp_to_init(me.qp, &full);
}

long side_open(struct side_options *o)
{
	long rc = side_open_device(o);
	return rc != 0 ? rc : side_create_qp(o);
}

long side_endpoint(struct endpoint *e)
{
	*e = (struct endpoint){
		.qpn = me.qp != NULL ? me.qp->qp_num : 0,
		.psn = 0x1234,
		.rkey = me.mr->rkey,
		.lid = me.lid,
		.gid = me.gid,
		.addr = (uintptr_t)me.buf,
	};
	return 0;
}

long side_connect(struct endpoint *other)
{
	me.other = *other;
	int rc = qp_to_rtr(me.qp, &me.options, other);
	return rc != 0 ? rc : qp_to_rts(me.qp, &me.options);
}

long side_close(int *unused)
{
	int first = 0, rc;
#define DESTROY(object, call)                                                                                          \
	do {                                                                                                           \
		rc = (object) != NULL ? (call) : 0;                                                                    \
		first = first != 0 ? first : rc;                                                                       \
	} while (0)
	DESTROY(me.extra_qp, ibv_destroy_qp(me.extra_qp));
	DESTROY(me.qp, me.rdma_cm ? 0 : ibv_destroy_qp(me.qp));
	DESTROY(me.srq, ibv_destroy_srq(me.srq));
	DESTROY(me.mr, ibv_dereg_mr(me.mr));
	DESTROY(me.scq, ibv_destroy_cq(me.scq));
	DESTROY(me.rcq, ibv_destroy_cq(me.rcq));
	DESTROY(me.channel, ibv_destroy_comp_channel(me.channel));
	DESTROY(me.pd, ibv_dealloc_pd(me.pd));
	DESTROY(me.context, me.rdma_cm ? 0 : ibv_close_device(me.context));
#undef DESTROY
	if (me.buf != NULL) {
		munmap(me.buf, SIDE_BUFFER_BYTES);
	}
	if (me.memfd > 0) {
		close(me.memfd);
	}
	memset(&me, 0, sizeof(me));
	return -first;
}

bool pair_open(const struct side_options *near, const struct side_options *far)
{
	struct side_options near_options = *near, far_options = far != NULL ? *far : *near;
	struct endpoint here, there;
	long rc;
#define STEP(call)                                                                                                     \
	do {                                                                                                           \
		rc = (call);                                                                                           \
		if (rc != 0) {                                                                                         \
			printf("# %s: %s\n", #call, strerror((int)-rc));                                               \
			CU_FAIL("pair_open: " #call);                                                                  \
			return false;                                                                                  \
		}                                                                                                      \
	} while (0)
	if (far_pid() == 0) {
		STEP(far_start());
	}
	STEP(side_open(&near_options));
	STEP(FAR(side_open, &far_options));
	STEP(side_endpoint(&here));
	STEP(FAR(side_endpoint, &there));
	STEP(side_connect(&there));
	STEP(FAR(side_connect, &here));
#undef STEP
	return true;
}

bool pair_open_plain(void)
{
	return pair_open(&(struct side_options){0}, NULL);
}

void pair_close(void)
{
	CU_ASSERT_EQUAL(FAR(side_close, &(int){0}), 0);
	CU_ASSERT_EQUAL(side_close(&(int){0}), 0);
}
