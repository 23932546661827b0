// tollgate IP PORT TOLL: io_uring, one thread; TOLL=1: a token bucket (16 answers for each 4 ms, by IORING_OP_TIMEOUT)
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { ACCEPT, RECV, SEND, TIMER };
static unsigned *sqt, *sqm, *sqa, *cqh, *cqt, *cqm, ready; static struct io_uring_sqe *sqes; static struct io_uring_cqe *cqes;
static char in[1024][128];
static struct io_uring_sqe *put(int op, int fd, const void *p, unsigned len, int kind) {
    unsigned t = *sqt, i = t & *sqm; struct io_uring_sqe *e = &sqes[i]; memset(e, 0, sizeof *e);
    e->opcode = op; e->fd = fd; e->addr = (unsigned long)p; e->len = len; e->user_data = (unsigned long)kind << 32 | (unsigned)fd;
    sqa[i] = i; __atomic_store_n(sqt, t + 1, __ATOMIC_RELEASE); ready++; return e;
}
static void answer(int fd) { put(IORING_OP_SEND, fd, "passed\n", 7, SEND)->msg_flags = MSG_NOSIGNAL; put(IORING_OP_RECV, fd, in[fd], 128, RECV); }
int main(int c, char **v) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, toll = atoi(v[3]), tokens = 16, timing = 0, line[1024], head = 0, tail = 0;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[2]))}; inet_pton(AF_INET, v[1], &a.sin_addr);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) { perror("tollgate"); return 1; }
    struct io_uring_params p = {0}; int ring = syscall(__NR_io_uring_setup, 256, &p);
    if (ring < 0) { perror("io_uring_setup"); return 1; }
    unsigned long z = p.cq_off.cqes + p.cq_entries * sizeof *cqes, y = p.sq_off.array + p.sq_entries * 4;
    char *m = mmap(0, z > y ? z : y, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    sqt = (void *)(m + p.sq_off.tail); sqm = (void *)(m + p.sq_off.ring_mask); sqa = (void *)(m + p.sq_off.array);
    cqh = (void *)(m + p.cq_off.head); cqt = (void *)(m + p.cq_off.tail); cqm = (void *)(m + p.cq_off.ring_mask); cqes = (void *)(m + p.cq_off.cqes);
    struct __kernel_timespec pause = {.tv_nsec = 4000000};
    put(IORING_OP_ACCEPT, l, 0, 0, ACCEPT); puts("ready"); fflush(stdout);
    for (;;) {
        int k = syscall(__NR_io_uring_enter, ring, ready, 1, IORING_ENTER_GETEVENTS, 0, 0); if (k > 0) ready -= k;
        for (unsigned h = *cqh; h != __atomic_load_n(cqt, __ATOMIC_ACQUIRE); __atomic_store_n(cqh, ++h, __ATOMIC_RELEASE)) {
            struct io_uring_cqe *e = &cqes[h & *cqm]; int fd = (int)e->user_data, kind = e->user_data >> 32, r = e->res;
            if (kind == ACCEPT) { if (r >= 0 && r < 1024) put(IORING_OP_RECV, r, in[r], 128, RECV); put(IORING_OP_ACCEPT, l, 0, 0, ACCEPT); }
            if (kind == TIMER) timing = 0, tokens = 16;
            if (kind == RECV) { if (r <= 0) close(fd); else line[tail++ & 1023] = fd; }
        }
        while (head != tail && (!toll || tokens > 0)) answer(line[head++ & 1023]), tokens--;
        if (toll && head != tail && !timing) put(IORING_OP_TIMEOUT, 0, &pause, 1, TIMER), timing = 1;
    }
}
