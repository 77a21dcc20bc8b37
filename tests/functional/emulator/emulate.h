// Runs the threads of a CUDA kernel on a CPU, as coroutines of a single thread of the machine.
//
// A barrier or a shuffle gives control to the next coroutine. The order of the coroutines between two
// barriers is a parameter: a kernel without data races gives equal bits in all orders.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

struct Dim { int x, y, z; };
struct float4 { float x, y, z, w; };
struct Barrier {
    int size, arrived = 0;
    long generation = 0;
};
struct Warp {
    Barrier barrier{32};
    float values[32];
};
struct Fiber {
    jmp_buf at;
    ucontext_t context;
    Dim thread, block;
    Barrier* waits = nullptr;
    long until = 0;
    bool is_started = false, is_done = false;
    Warp* warp;
    Barrier* of_block;
    float* memory;
};
static thread_local Fiber* running;
static thread_local jmp_buf scheduler;
static thread_local Barrier* of_cluster;
static thread_local std::vector<float*> memories;  // of the blocks of the running cluster
static thread_local std::function<void()>* body;
static thread_local Dim gridDim;
#define threadIdx (running->thread)
#define blockIdx (running->block)
#define DEV static inline
#define KERNEL(threads) extern "C" void
#define SHARED(name, size) float* name = running->memory; static_assert((size) * 4 <= 48 << 10, "shared memory")

static inline void await(Barrier* barrier) {
    if (++barrier->arrived == barrier->size) {
        barrier->arrived = 0;
        barrier->generation++;
        return;
    }
    running->waits = barrier;
    running->until = barrier->generation + 1;
    if (!_setjmp(running->at)) _longjmp(scheduler, 1);
}
static inline float exchange(float v, int lane) {
    Warp* warp = running->warp;
    warp->values[threadIdx.x & 31] = v;
    await(&warp->barrier);
    const float other = warp->values[lane];
    await(&warp->barrier);
    return other;
}
static inline float shuffle_xor(float v, int mask) { return exchange(v, (threadIdx.x & 31) ^ mask); }
template <int WIDTH>
static inline float shuffle(float v, int lane) { return exchange(v, (threadIdx.x & 31 & ~(WIDTH - 1)) + lane); }
static inline int bits_of(float x) {
    int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
static inline float float_of(int bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
static inline float fast_exp(float x) { return std::exp(x); }
static inline float exp2_approx(float x) { return std::exp2(x); }
static inline float reciprocal(float x) { return 1.0f / x; }
static inline float where_less(float x, float bound, float if_less, float otherwise) { return x < bound ? if_less : otherwise; }
static inline void __syncthreads() { await(running->of_block); }
static inline void arrive() { await(of_cluster); }
static inline void wait() {}
static inline void put(float* p, int rank, float v) { memories[rank][p - running->memory] = v; }

static void start_fiber() {
    (*body)();
    running->is_done = true;
    _longjmp(scheduler, 1);
}

// Calls the kernel for each thread of a grid. With `order` 1 the last warp runs first.
static void emulate(int grid_x, int grid_y, int cluster, int threads, int order, std::function<void()> kernel) {
    constexpr size_t STACK = 48 << 10, MEMORY = 12 << 10;
    const int count = cluster * threads;
    std::vector<char> stacks(STACK * count);
    gridDim = {grid_x, grid_y, 1};
    body = &kernel;
    for (int y = 0; y < grid_y; y++)
        for (int x = 0; x < grid_x; x += cluster) {
            std::vector<std::vector<float>> shared(cluster, std::vector<float>(MEMORY, NAN));
            memories.clear();
            for (auto& memory : shared) memories.push_back(memory.data());
            Barrier all{count};
            of_cluster = &all;
            std::vector<Barrier> blocks(cluster, Barrier{threads});
            std::vector<Warp> warps(count / 32);
            std::vector<Fiber> fibers(count);
            for (int i = 0; i < count; i++) {
                Fiber& fiber = fibers[i];
                const int block = i / threads;
                fiber.thread = {i % threads, 0, 0};
                fiber.block = {x + block, y, 0};
                fiber.warp = &warps[i / 32];
                fiber.of_block = &blocks[block];
                fiber.memory = memories[block];
            }
            // A warp runs as far as it can before the next warp does, because a missing barrier then
            // shows. The loops are volatile, because `_longjmp` returns into them.
            volatile int left = count;
            while (left > 0)
                for (volatile int k = 0; k < count / 32; k = k + 1) {
                    volatile bool moved = true;
                    while (moved) {
                        moved = false;
                        for (volatile int lane = 0; lane < 32; lane = lane + 1) {
                            const int at = 32 * k + lane;
                            Fiber& fiber = fibers[order ? count - 1 - at : at];
                            if (fiber.is_done || (fiber.waits && fiber.waits->generation < fiber.until)) continue;
                            fiber.waits = nullptr;
                            running = &fiber;
                            moved = true;
                            if (!_setjmp(scheduler)) {
                                if (fiber.is_started) _longjmp(fiber.at, 1);
                                fiber.is_started = true;
                                getcontext(&fiber.context);
                                fiber.context.uc_stack.ss_sp = stacks.data() + STACK * (&fiber - fibers.data());
                                fiber.context.uc_stack.ss_size = STACK;
                                fiber.context.uc_link = nullptr;
                                makecontext(&fiber.context, start_fiber, 0);
                                setcontext(&fiber.context);
                            }
                            if (running->is_done) left = left - 1;
                        }
                    }
                }
        }
}
