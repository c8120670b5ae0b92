/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps over rdma_cm: see cm.h. */
#include "unittest/softverbs/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/mman.h>

struct cm cm;

static struct sockaddr_in address(const struct cm_step *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(s->port)};
	inet_aton(s->ip[0] != '\0' ? s->ip : sides_ip(), &a.sin_addr);
	return a;
}

static long need_channel(void)
{
	if (cm.channel == NULL) {
		cm.channel = rdma_create_event_channel();
	}
	return cm.channel == NULL ? -errno : 0;
}

long cm_create(struct cm_step *s)
{
	long rc = need_channel();
	if (rc == 0 && rdma_create_id(cm.channel, &cm.id[s->slot], &cm.id[s->slot], RDMA_PS_TCP) != 0) {
		rc = -errno;
	}
	return rc;
}

long cm_listen(struct cm_step *s)
{
	struct sockaddr_in a = address(s);
	long rc = need_channel();
	if (rc != 0) {
		return rc;
	}
	if (rdma_create_id(cm.channel, &cm.listener, &cm.listener, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(cm.listener, (struct sockaddr *)&a) != 0 ||
	    rdma_listen(cm.listener, s->backlog != 0 ? s->backlog : 16) != 0) {
		return -errno;
	}
	s->port = ntohs(rdma_get_src_port(cm.listener));
	return 0;
}

long cm_unlisten(struct cm_step *s)
{
	int rc = rdma_destroy_id(cm.listener);
	cm.listener = NULL;
	return rc != 0 ? -errno : 0;
}

static int slot_of(const struct rdma_cm_id *id)
{
	for (int i = 0; i < CM_SLOTS; i++) {
		if (cm.id[i] == id) {
			return i;
		}
	}
	return -1;
}

static void take_parameters(struct cm_step *s, const struct rdma_conn_param *p)
{
	s->responder_resources = p->responder_resources;
	s->initiator_depth = p->initiator_depth;
	s->private_len = p->private_data != NULL ? p->private_data_len : 0;
	if (s->private_len > 0) {
		memcpy(s->private_data, p->private_data, s->private_len);
	}
}

static long next_event(struct cm_step *s, bool any)
{
	struct rdma_cm_event *e;
	if (cm.channel == NULL || fd_wait(cm.channel->fd, SIDE_DEADLINE_MS) != 0) {
		return -ETIMEDOUT;
	}
	if (rdma_get_cm_event(cm.channel, &e) != 0) {
		return -errno;
	}
	long type = e->event, rc = type;
	int slot = slot_of(e->id);
	s->status = e->status;
	switch (e->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		cm.id[s->slot] = e->id;
		slot = e->listen_id == cm.listener ? s->slot : -1;
		/* fall through */
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		take_parameters(s, &e->param.conn);
		break;
	default:
		break;
	}
	rdma_ack_cm_event(e);
	if (!any) {
		rc = type != (long)s->event ? -(CM_OTHER_EVENT + type)
					    : (slot != s->slot ? -(CM_OTHER_SLOT + slot) : 0);
	}
	return rc;
}

long cm_next(struct cm_step *s)
{
	return next_event(s, false);
}

long cm_next_any(struct cm_step *s)
{
	return next_event(s, true);
}

static long expect(struct cm_step *s, enum rdma_cm_event_type event)
{
	s->event = event;
	return cm_next(s);
}

long cm_resolve(struct cm_step *s)
{
	struct sockaddr_in a = address(s);
	long rc = cm_create(s);
	if (rc != 0) {
		return rc;
	}
	if (rdma_resolve_addr(cm.id[s->slot], NULL, (struct sockaddr *)&a, 2000) != 0) {
		return -errno;
	}
	rc = expect(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rc == 0 && rdma_resolve_route(cm.id[s->slot], 2000) != 0) {
		rc = -errno;
	}
	return rc != 0 ? rc : expect(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* What the queue pairs share, once per process. */
static long need_objects(struct rdma_cm_id *id)
{
	if (me.pd != NULL) {
		return 0;
	}
	memset(&me, 0, sizeof(me));
	me.rdma_cm = true;
	me.context = id->verbs;
	me.options = (struct side_options){.send_wr = 64, .recv_wr = 64, .send_sge = 4, .recv_sge = 4};
	me.pd = ibv_alloc_pd(id->verbs);
	me.channel = ibv_create_comp_channel(id->verbs);
	me.scq = ibv_create_cq(id->verbs, 512, &me.scq, me.channel, 0);
	me.rcq = ibv_create_cq(id->verbs, 512, &me.rcq, me.channel, 0);
	me.buf = mmap(NULL, SIDE_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (me.pd == NULL || me.channel == NULL || me.scq == NULL || me.rcq == NULL || me.buf == MAP_FAILED) {
		return -errno;
	}
	me.mr = ibv_reg_mr(me.pd, me.buf, SIDE_BUFFER_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	return me.mr == NULL ? -errno : 0;
}

static long by_hand_to(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};
	int mask;
	if (rdma_init_qp_attr(id, &a, &mask) != 0) {
		return -errno;
	}
	if (state == IBV_QPS_RTR) { /* as programs do that do not want what was negotiated */
		a.max_dest_rd_atomic = 4;
	} else if (state == IBV_QPS_RTS) {
		a.max_rd_atomic = 4;
	}
	return -ibv_modify_qp(qp, &a, mask);
}

static struct ibv_qp *hand_qp[CM_SLOTS];

long cm_qp(struct cm_step *s)
{
	struct rdma_cm_id *id = cm.id[s->slot];
	struct ibv_qp_init_attr a;
	long rc = need_objects(id);
	if (rc != 0) {
		return rc;
	}
	qp_init_attr(&a, &me.options);
	cm.by_hand[s->slot] = s->by_hand;
	if (s->by_hand) {
		hand_qp[s->slot] = ibv_create_qp(me.pd, &a);
		rc = hand_qp[s->slot] == NULL ? -errno : by_hand_to(id, hand_qp[s->slot], IBV_QPS_INIT);
	} else if (rdma_create_qp(id, me.pd, &a) != 0) {
		rc = -errno;
	}
	return rc != 0 ? rc : cm_use(s);
}

long cm_use(struct cm_step *s)
{
	me.qp = cm.by_hand[s->slot] ? hand_qp[s->slot] : cm.id[s->slot]->qp;
	return me.qp == NULL ? -EINVAL : 0;
}

static struct rdma_conn_param parameters(const struct cm_step *s)
{
	return (struct rdma_conn_param){
		.private_data = s->private_data,
		.private_data_len = (uint8_t)s->private_len,
		.responder_resources = s->responder_resources != 0 ? s->responder_resources : 1,
		.initiator_depth = s->initiator_depth != 0 ? s->initiator_depth : 1,
		.retry_count = 7,
		.rnr_retry_count = s->rnr_retry != 0 ? s->rnr_retry : 7,
		.qp_num = cm.by_hand[s->slot] ? hand_qp[s->slot]->qp_num : 0,
	};
}

long cm_connect(struct cm_step *s)
{
	struct rdma_conn_param p = parameters(s);
	return rdma_connect(cm.id[s->slot], &p) != 0 ? -errno : 0;
}

long cm_accept(struct cm_step *s)
{
	struct rdma_conn_param p = parameters(s);
	long rc = 0;
	if (cm.by_hand[s->slot]) {
		rc = by_hand_to(cm.id[s->slot], hand_qp[s->slot], IBV_QPS_RTR);
		rc = rc != 0 ? rc : by_hand_to(cm.id[s->slot], hand_qp[s->slot], IBV_QPS_RTS);
	}
	if (rc == 0 && rdma_accept(cm.id[s->slot], &p) != 0) {
		rc = -errno;
	}
	return rc;
}

long cm_establish(struct cm_step *s)
{
	long rc = by_hand_to(cm.id[s->slot], hand_qp[s->slot], IBV_QPS_RTR);
	rc = rc != 0 ? rc : by_hand_to(cm.id[s->slot], hand_qp[s->slot], IBV_QPS_RTS);
	if (rc == 0 && rdma_establish(cm.id[s->slot]) != 0) {
		rc = -errno;
	}
	return rc;
}

long cm_reject(struct cm_step *s)
{
	return rdma_reject(cm.id[s->slot], s->private_data, (uint8_t)s->private_len) != 0 ? -errno : 0;
}

long cm_disconnect(struct cm_step *s)
{
	return rdma_disconnect(cm.id[s->slot]) != 0 ? -errno : 0;
}

long cm_ports(struct cm_step *s)
{
	s->src_port = ntohs(rdma_get_src_port(cm.id[s->slot]));
	s->dst_port = ntohs(rdma_get_dst_port(cm.id[s->slot]));
	return 0;
}

long cm_serve(struct cm_step *s)
{
	long rc = expect(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	rc = rc != 0 ? rc : cm_qp(s);
	s->private_len = 0;
	rc = rc != 0 ? rc : cm_accept(s);
	return rc != 0 ? rc : expect(s, RDMA_CM_EVENT_ESTABLISHED);
}

long cm_destroy(struct cm_step *s)
{
	struct rdma_cm_id *id = cm.id[s->slot];
	int rc = 0;
	if (id == NULL) {
		return 0;
	}
	if (hand_qp[s->slot] != NULL) {
		rc = ibv_destroy_qp(hand_qp[s->slot]);
	} else if (id->qp != NULL) {
		rdma_destroy_qp(id);
	}
	hand_qp[s->slot] = NULL;
	cm.by_hand[s->slot] = false;
	cm.id[s->slot] = NULL;
	rc = rdma_destroy_id(id) != 0 ? errno : rc;
	return -rc;
}

long cm_close(int *unused)
{
	long first = 0, rc;
	me.qp = NULL;
	for (int i = 0; i < CM_SLOTS; i++) {
		rc = cm_destroy(&(struct cm_step){.slot = i});
		first = first != 0 ? first : rc;
	}
	if (cm.listener != NULL) {
		rc = cm_unlisten(NULL);
		first = first != 0 ? first : rc;
	}
	rc = me.rdma_cm ? side_close(&(int){0}) : 0;
	first = first != 0 ? first : rc;
	if (cm.channel != NULL) {
		rdma_destroy_event_channel(cm.channel);
	}
	if (cm.channel2 != NULL) {
		rdma_destroy_event_channel(cm.channel2);
	}
	memset(&cm, 0, sizeof(cm));
	return first;
}

bool cm_ok(const char *what, int line, long rc)
{
	if (rc <= -CM_OTHER_SLOT) {
		printf("# line %d: %s: the event is another identifier's (slot %ld)\n", line, what,
		       -rc - CM_OTHER_SLOT);
	} else if (rc <= -CM_OTHER_EVENT) {
		printf("# line %d: %s: got %s\n", line, what,
		       rdma_event_str((enum rdma_cm_event_type)(-rc - CM_OTHER_EVENT)));
	} else if (rc != 0) {
		printf("# line %d: %s: %s\n", line, what, strerror((int)-rc));
	}
	return rc == 0;
}

#define STEP(call)                                                                                                     \
	do {                                                                                                           \
		if (!cm_ok(#call, __LINE__, (call))) {                                                                 \
			CU_FAIL(#call);                                                                                \
			return false;                                                                                  \
		}                                                                                                      \
	} while (0)

static long far_begins_to_serve(const struct cm_step *s)
{
	return far_begin((void (*)(void))cm_serve, s, sizeof(*s));
}

bool cm_join(int slot, bool near_by_hand, bool far_by_hand, uint16_t port)
{
	struct cm_step near = {.slot = slot, .port = port, .by_hand = near_by_hand};
	struct cm_step far = {.slot = slot, .by_hand = far_by_hand};
	STEP(cm_resolve(&near));
	STEP(cm_qp(&near));
	STEP(far_begins_to_serve(&far));
	STEP(cm_connect(&near));
	if (near_by_hand) {
		STEP(expect(&near, RDMA_CM_EVENT_CONNECT_RESPONSE));
		STEP(cm_establish(&near));
	} else {
		STEP(expect(&near, RDMA_CM_EVENT_ESTABLISHED));
	}
	STEP(FAR_END(&far));
	return true;
}

bool cm_pair(bool near_by_hand, bool far_by_hand, uint16_t *port)
{
	struct cm_step l = {0};
	struct endpoint there;
	if (far_pid() == 0) {
		STEP(far_start());
	}
	STEP(FAR(cm_listen, &l));
	if (port != NULL) {
		*port = l.port;
	}
	if (!cm_join(0, near_by_hand, far_by_hand, l.port)) {
		return false;
	}
	STEP(FAR(side_endpoint, &there));
	me.other = there;
	return true;
}

void cm_exchange(void)
{
	static uint32_t seed;
	struct area a = {.len = 1000, .seed = ++seed};
	struct sr s = {.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 1000, 0}}};
	struct rr r = {.n = 1, .p = {{4096, 1000, 0}}};
	fill(&a);
	FAR(fill, &a);
	a.off = 4096;
	DO(FAR(post_recv, &r));
	DO(post_send(&s));
	ASSERT_STATUS(far_recv_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	DO(FAR(check, &a));
	DO(post_recv(&r));
	DO(FAR(post_send, &s));
	ASSERT_STATUS(wait_recv_wc().status, IBV_WC_SUCCESS);
	ASSERT_STATUS(far_send_wc().status, IBV_WC_SUCCESS);
	DO(check(&a));
}

void cm_pair_close(void)
{
	struct cm_step near = {.event = RDMA_CM_EVENT_DISCONNECTED}, far = near;
	DO(cm_disconnect(&near));
	DO(FAR(cm_next, &far));
	DO(FAR(cm_disconnect, &far));
	DO(cm_next(&near));
	DO(FAR(cm_close, &(int){0}));
	DO(cm_close(&(int){0}));
}
