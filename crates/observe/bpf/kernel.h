/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What the programs need of the kernel and of the BPF system: types, helpers, map declarations.
 *
 * Kernel structures name only the fields that are read. preserve_access_index has the compiler note each access, so that the
 * loader puts in the offset of the running kernel (CO-RE).
 */
#ifndef MILLSTREAM_KERNEL_H
#define MILLSTREAM_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define KERNEL_TYPE __attribute__((preserve_access_index))

/* Map declarations as the loader reads them from BTF. */
#define UINT(name, value) int(*name)[value]
#define TYPE(name, of) of *name

/* enum bpf_map_type */
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_HASH 5
#define MAP_PERCPU_ARRAY 6
#define MAP_STACK_TRACE 7
#define MAP_LRU_HASH 9

#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_USER_STACK (1 << 8)
#define BPF_F_FAST_STACK_CMP (1 << 9)

/* Numbers of enum bpf_func_id. */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const now_ns)(void) = (void *)5;
static u32 (*const this_cpu)(void) = (void *)8;
static u64 (*const current_ids)(void) = (void *)14;
static long (*const stack_id)(void *ctx, void *map, u64 flags) = (void *)27;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const read_kernel_text)(void *to, u32 size, const void *from) = (void *)115;
static struct task_struct *(*const current_task)(void) = (void *)158;
static u64 (*const attach_cookie)(void *ctx) = (void *)174;
static struct pt_regs *(*const registers_of)(struct task_struct *task) = (void *)175;

struct pt_regs {
	u64 orig_ax;
	u64 di;
	u64 si;
	u64 ip;
	u64 sp;
} KERNEL_TYPE;

/* Beside the address of a function, in the place of a stack's number: see program_stack. User addresses are below it. */
#define INNERMOST (1ull << 62)
#define EEXIST 17

/*
 * Returns the number of the stack of the running program in `map`; negative where it has none. A hash of the stack is its
 * place: where another stack is there already, returns the address of the innermost function, with INNERMOST.
 */
INLINE long program_stack(void *ctx, void *map, struct pt_regs *regs)
{
	long id = stack_id(ctx, map, BPF_F_FAST_STACK_CMP | BPF_F_USER_STACK);
	return id == -EEXIST ? (long)(regs->ip | INNERMOST) : id;
}

struct files_struct;

struct sched_entity {
	u64 sum_exec_runtime;
} KERNEL_TYPE;

struct task_struct {
	int pid;
	int tgid;
	u32 flags;
	u64 start_time;
	char comm[16];
	struct task_struct *real_parent;
	struct files_struct *files;
	struct sched_entity se;
} KERNEL_TYPE;

struct irqaction {
	u32 irq;
} KERNEL_TYPE;

struct cpumask {
	unsigned long bits[1];
} KERNEL_TYPE;

/* include/trace/events/lock.h */
#define LCB_F_SPIN (1u << 0)
#define LCB_F_READ (1u << 1)
#define LCB_F_WRITE (1u << 2)
#define LCB_F_RT (1u << 3)
#define LCB_F_PERCPU (1u << 4)
#define LCB_F_MUTEX (1u << 5)

#endif
