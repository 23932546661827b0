/* The cases of benches/packet.rs on DPDK's mempool, mbuf and ring; spoken to through a pipe. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define SLICE 8192

static struct rte_mempool *pool;
static struct rte_ring *ring;
static struct rte_mbuf *held[512];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void single(int outstanding, int operations)
{
    for (int done = 0; done < operations; done += outstanding) {
        for (int i = 0; i < outstanding; i++)
            held[i] = rte_pktmbuf_alloc(pool);
        for (int i = 0; i < outstanding; i++)
            rte_pktmbuf_free(held[i]);
    }
}

static void bulk(int outstanding, int operations)
{
    for (int done = 0; done < operations; done += outstanding) {
        for (int i = 0; i < outstanding; i += 32)
            if (rte_pktmbuf_alloc_bulk(pool, held + i, 32))
                rte_panic("no mbufs\n");
        for (int i = 0; i < outstanding; i += 32)
            rte_pktmbuf_free_bulk(held + i, 32);
    }
}

static int taker(void *arg)
{
    int left = *(int *)arg;
    struct rte_mbuf *burst[32];
    while (left) {
        unsigned n = rte_ring_sc_dequeue_burst(ring, (void **)burst, 32, NULL);
        if (!n)
            rte_pause();
        rte_pktmbuf_free_bulk(burst, n);
        left -= n;
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* Nanoseconds of the slice that a quarter of all are faster than. */
static double cross(int operations)
{
    struct rte_mbuf *burst[32];
    static double slices[1 << 12];
    unsigned other = rte_get_next_lcore(-1, 1, 0), count = operations / SLICE;
    rte_eal_remote_launch(taker, &operations, other);
    for (unsigned slice = 0; slice < count; slice++) {
        double start = now();
        for (int done = 0; done < SLICE; done += 32) {
            while (rte_pktmbuf_alloc_bulk(pool, burst, 32))
                rte_pause();
            for (unsigned n = 0; n < 32;) {
                unsigned put = rte_ring_sp_enqueue_burst(ring, (void **)burst + n, 32 - n, NULL);
                if (!put)
                    rte_pause();
                n += put;
            }
        }
        slices[slice] = (now() - start) / SLICE;
    }
    rte_eal_wait_lcore(other);
    qsort(slices, count, sizeof *slices, by_size);
    return slices[count / 4];
}

int main(int argc, char **argv)
{
    if (rte_eal_init(argc, argv) < 0)
        return 1;
    pool = rte_pktmbuf_pool_create("p", 16383, 512, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
    ring = rte_ring_create("r", 1024, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (!pool || !ring)
        return 1;
    char name[64];
    int operations;
    while (scanf("%63s %d", name, &operations) == 2) {
        double start = now();
        int outstanding = atoi(name + strcspn(name, "0123456789"));
        if (!strncmp(name, "single", 6))
            single(outstanding, operations);
        else if (!strncmp(name, "bulk", 4))
            bulk(outstanding, operations);
        else if (!strncmp(name, "cross", 5)) {
            printf("=%f\n", cross(operations));
            fflush(stdout);
            continue;
        } else {
            printf("=nan\n");
            fflush(stdout);
            continue;
        }
        printf("=%f\n", (now() - start) / operations);
        fflush(stdout);
    }
    return 0;
}
