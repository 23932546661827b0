/* DPDK's FIB beside the route table: reads the routes and addresses that main.rs made, answers cases through a pipe. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_errno.h>

#define BULK 32

struct route {
    uint8_t addr[16];
    uint32_t len;
    uint32_t hop;
};

static struct route *routes[2];
static uint8_t (*addrs[2])[16];
static uint32_t *addrs4;
static uint32_t route_count[2], addr_count;
static struct rte_fib *fib4;
static struct rte_fib6 *fib6;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static uint32_t key4(const uint8_t *a)
{
    return (uint32_t)a[0] << 24 | a[1] << 16 | a[2] << 8 | a[3];
}

static void load(int family, const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t count[2];
    if (!file || fread(count, sizeof(count), 1, file) != 1)
        rte_exit(1, "cannot read %s\n", path);
    route_count[family] = count[0];
    addr_count = count[1];
    routes[family] = malloc(sizeof(struct route) * count[0]);
    addrs[family] = malloc(16ul * count[1]);
    if (fread(routes[family], sizeof(struct route), count[0], file) != count[0] ||
        fread(addrs[family], 16, count[1], file) != count[1])
        rte_exit(1, "%s is too short\n", path);
    fclose(file);
}

static int change4(const struct route *r, int add)
{
    return add ? rte_fib_add(fib4, key4(r->addr), r->len, r->hop) : rte_fib_delete(fib4, key4(r->addr), r->len);
}

static int change6(const struct route *r, int add)
{
    return add ? rte_fib6_add(fib6, r->addr, r->len, r->hop) : rte_fib6_delete(fib6, r->addr, r->len);
}

static double lookups(int family, int bulk)
{
    uint64_t hops[BULK], sum = 0;
    double begin = now();
    for (uint32_t i = 0; i < addr_count; i += bulk) {
        if (family == 0)
            rte_fib_lookup_bulk(fib4, addrs4 + i, hops, bulk);
        else
            rte_fib6_lookup_bulk(fib6, addrs[1] + i, hops, bulk);
        for (int j = 0; j < bulk; j++)
            sum += hops[j];
    }
    double ns = (now() - begin) / addr_count;
    printf("=%f %" PRIu64 "\n", ns, sum);
    return ns;
}

int main(int argc, char **argv)
{
    int used = rte_eal_init(argc, argv);
    if (used < 0)
        rte_exit(1, "no EAL\n");
    argc -= used, argv += used;
    load(0, argv[1]);
    load(1, argv[2]);
    struct rte_fib_conf conf4 = {.type = RTE_FIB_DIR24_8, .default_nh = 0, .max_routes = 1100000};
    conf4.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
    conf4.dir24_8.num_tbl8 = 1 << 17;
    struct rte_fib6_conf conf6 = {.type = RTE_FIB6_TRIE, .default_nh = 0, .max_routes = 400000};
    conf6.trie.nh_sz = RTE_FIB6_TRIE_4B;
    conf6.trie.num_tbl8 = 1 << 19;
    fib4 = rte_fib_create("v4", 0, &conf4);
    fib6 = rte_fib6_create("v6", 0, &conf6);
    if (!fib4 || !fib6)
        rte_exit(1, "no FIB: %s\n", rte_strerror(rte_errno));
    for (uint32_t i = 0; i < route_count[0]; i++)
        if (change4(routes[0] + i, 1))
            rte_exit(1, "IPv4 route %u is refused\n", i);
    for (uint32_t i = 0; i < route_count[1]; i++)
        if (change6(routes[1] + i, 1))
            rte_exit(1, "IPv6 route %u is refused\n", i);
    addrs4 = malloc(4ul * addr_count);
    for (uint32_t i = 0; i < addr_count; i++)
        addrs4[i] = key4(addrs[0][i]);
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        int family = line[0] == '6';
        const char *what = line + 2;
        enum rte_fib_lookup_type type4 = RTE_FIB_LOOKUP_DEFAULT;
        enum rte_fib6_lookup_type type6 = RTE_FIB6_LOOKUP_DEFAULT;
        if (!strncmp(what, "scalar", 6)) {
            type4 = RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;
            type6 = RTE_FIB6_LOOKUP_TRIE_SCALAR;
        }
        rte_fib_select_lookup(fib4, type4);
        rte_fib6_select_lookup(fib6, type6);
        if (!strncmp(what, "update", 6)) {
            uint32_t n = 2000, step = route_count[family] / n, failed = 0;
            double begin = now();
            for (int add = 0; add < 2; add++)
                for (uint32_t i = 0; i < n; i++)
                    failed += 0 != (family ? change6 : change4)(routes[family] + i * step, add);
            printf("=%f %u\n", (now() - begin) / (2 * n), failed);
        } else {
            lookups(family, strncmp(what, "single", 6) ? BULK : 1);
        }
        fflush(stdout);
    }
    return 0;
}
