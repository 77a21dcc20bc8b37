// Masked recurrences in which a single launch runs all T steps: LSTM, GRU and RAU, forward and
// backward. All numbers are float32, without tensor cores.
//
// A cluster of CLUSTER blocks processes ROWS rows of the batch, for the whole sequence. Each block
// computes HIDDEN / CLUSTER units with all their gates. The recurrent weights of these units stay in
// registers from the first step to the last, spread over the threads of the block. The state of all
// units is in the shared memory of every block.
//
// Forward, SPLIT neighbouring lanes share a unit, and a lane has the gate columns of its unit for
// HIDDEN / SPLIT rows of U. The sums over the lanes end with gate q in lane group q.
// Backward, BACK_SPLIT neighbouring lanes share four units. The sums end with unit e in lane group e,
// in which four neighbouring lanes compute a gate each.
//
// LSTM and GRU_AFTER need one product with the state in each step, and so one barrier, because the
// state is in shared memory twice. GRU_BEFORE and RAU need a second product: the early columns
// multiply the state h, and the late column multiplies r h.
//
// Blocks of H columns: LSTM i, f, g, o; GRU r, z, c; RAU r, z, c, a, u.
// Constants of the compilation: KIND, HIDDEN, CLUSTER, ROWS, SPLIT, BACK_SPLIT, PREFETCH (steps that
// are loaded ahead), RESTARTS and DROPOUT (0 or 1), SCALE (the sum of the attention weights of RAU),
// and BOUND (of the gradients inside a step; undefined means no bound).
// The grid is (CLUSTER * ceil(B / ROWS), D) for D directions.
#define LSTM 0
#define GRU_AFTER 1   // the reset gate multiplies the product
#define GRU_BEFORE 2  // the reset gate multiplies the state before the product
#define RAU 3

#ifdef EMULATE
#include "emulate.h"
#else
#define DEV __device__ __forceinline__
#if CLUSTER == 1  // cards before compute capability 9.0 have no clusters
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#else
#define KERNEL(threads) extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(threads, 1)
#endif
#define SHARED(name, size) __shared__ __align__(16) float name[size]
// Returns the value of lane `lane` of WIDTH neighbouring lanes.
template <int WIDTH> DEV float shuffle(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane, WIDTH); }
DEV float shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEV int bits_of(float x) { return __float_as_int(x); }
DEV float float_of(int bits) { return __int_as_float(bits); }
DEV float fast_exp(float x) { return __expf(x); }
// Assembler, because from C++ the compiler makes branches, in which the lanes of a warp wait for each
// other.
DEV float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float where_less(float x, float bound, float if_less, float otherwise) {
    float y;
    asm("{.reg .pred p; setp.lt.f32 p, %1, %2; selp.f32 %0, %3, %4, p;}"
        : "=f"(y) : "f"(x), "f"(bound), "f"(if_less), "f"(otherwise));
    return y;
}
#if CLUSTER == 1
DEV void arrive() { __syncthreads(); }
DEV void wait() {}
DEV void put(float* p, int, float v) { *p = v; }
#else
DEV void arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEV void wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Stores v at the address p of the shared memory of another block of the cluster.
DEV void put(float* p, int rank, float v) {
    unsigned remote, local = (unsigned)__cvta_generic_to_shared(p);
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(v) : "memory");
}
#endif
#endif

#ifndef ONLY  // 1, 2 or 3 compiles that kernel alone, because XLA compiles the text of each kernel
#define ONLY 0
#endif
constexpr int EARLY = KIND == LSTM || KIND == RAU ? 4 : KIND == GRU_AFTER ? 3 : 2;
constexpr int LATE = KIND == GRU_BEFORE || KIND == RAU ? 1 : 0;
constexpr int GATES = EARLY + LATE;
constexpr int SAVED = KIND == GRU_BEFORE ? 3 : KIND == RAU ? 5 : 4;
constexpr int GROUPS = EARLY > 2 ? 4 : 2;  // lane groups of a unit
// Steps of a round of the loop: one for each buffer of inputs, and of states if there are two copies.
constexpr int ROUND = LATE || PREFETCH % 2 == 0 ? PREFETCH : 2 * PREFETCH;
constexpr int UNITS = (HIDDEN + CLUSTER - 1) / CLUSTER;
#define PAD4(n) (4 * ((((n) + 3) / 4) | 1))  // a stride without bank conflicts
constexpr int KN = (HIDDEN + SPLIT - 1) / SPLIT, KP = PAD4(KN);  // forward: rows of U in a lane
constexpr int STATE = SPLIT * KP;                                // a padded state
constexpr int THREADS = (UNITS * SPLIT + 31) / 32 * 32;
constexpr int WARPS = THREADS / 32;
constexpr int KE = (EARLY * HIDDEN + BACK_SPLIT - 1) / BACK_SPLIT, KEP = PAD4(KE);
constexpr int KL = (HIDDEN + BACK_SPLIT - 1) / BACK_SPLIT, KLP = PAD4(KL);
constexpr int EARLY_SUMS = BACK_SPLIT * KEP, LATE_SUMS = LATE * BACK_SPLIT * KLP;
constexpr int BACK_THREADS = ((UNITS + 3) / 4 * BACK_SPLIT + 31) / 32 * 32;
constexpr int BACK_WARPS = BACK_THREADS / 32;
constexpr int PARTS = KIND == RAU ? CLUSTER * WARPS : 0;            // partial softmax sums of a row
constexpr int BACK_PARTS = KIND == RAU ? CLUSTER * BACK_WARPS : 0;
constexpr int FORWARD_MEMORY = 2 * ROWS * (STATE + PARTS) + 4;
constexpr int BACKWARD_MEMORY = ROWS * ((LATE ? 1 : 2) * EARLY_SUMS + LATE_SUMS + BACK_PARTS) + 4;
static_assert(2 * WARPS <= FORWARD_MEMORY && 2 * BACK_WARPS <= BACKWARD_MEMORY, "the marks of the warps");
static_assert(SPLIT >= 4 && SPLIT <= 32 && BACK_SPLIT >= 16 && BACK_SPLIT <= 32, "splits");
static_assert(CLUSTER <= 8 && SPLIT >= CLUSTER, "a lane of each unit stores into each block");

// The block of H columns of the early column q. The late column of both kinds is block 2.
DEV constexpr int block_of(int q) { return KIND == RAU && q > 1 ? q + 1 : q; }

DEV float clip(float x) {  // keeps NaN, unlike fminf
#ifdef BOUND
    return x > BOUND ? BOUND : x < -BOUND ? -BOUND : x;
#else
    return x;
#endif
}

DEV float fast_tanh(float x) {  // a relative error of some 4e-7 at most, without a branch
    const float a = fabsf(x), z = x * x;
    // tanh |x| = 1 - 2 / (exp(2 |x|) + 1), and exp(2 |x|) = 2^(|x| 2 / ln 2).
    const float large = fmaf(-2.0f, reciprocal(exp2_approx(2.885390082f * a) + 1.0f), 1.0f);
    float p = -0.005742009729146957f;
    p = fmaf(p, z, 0.020670229569077492f);
    p = fmaf(p, z, -0.053748562932014465f);
    p = fmaf(p, z, 0.13331538438796997f);
    p = fmaf(p, z, -0.3333328366279602f);
    const float small = fmaf(x * z, p, x);
    return where_less(a, 0.6f, small, copysignf(large, x));
}

DEV float fast_sigmoid(float x) { return fmaf(fast_tanh(0.5f * x), 0.5f, 0.5f); }

template <int LANES>  // sums a value over LANES lanes; all of them get the sum
DEV float sum_lanes(float v) {
#pragma unroll
    for (int m = LANES / 2; m >= 1; m /= 2) v += shuffle_xor(v, m);
    return v;
}

template <int LANES>  // sums two values over LANES lanes; half q of the lanes gets value q
DEV float sum_two(float a0, float a1, int s) {
    const bool high = s & (LANES / 2);
    float v = (high ? a1 : a0) + shuffle_xor(high ? a0 : a1, LANES / 2);
#pragma unroll
    for (int m = LANES / 4; m >= 1; m /= 2) v += shuffle_xor(v, m);
    return v;
}

template <int LANES>  // sums four values over LANES lanes; quarter q of the lanes gets value q
DEV float sum_four(float a0, float a1, float a2, float a3, int s) {
    const bool high = s & (LANES / 2), odd = s & (LANES / 4);
    const float k0 = (high ? a2 : a0) + shuffle_xor(high ? a0 : a2, LANES / 2);
    const float k1 = (high ? a3 : a1) + shuffle_xor(high ? a1 : a3, LANES / 2);
    float v = (odd ? k1 : k0) + shuffle_xor(odd ? k0 : k1, LANES / 4);
#pragma unroll
    for (int m = LANES / 8; m >= 1; m /= 2) v += shuffle_xor(v, m);
    return v;
}

template <int COLUMNS, int N>  // the products of a lane's weights with its part of each row
DEV void multiply(const float (&w)[COLUMNS][N], const float* from, int stride, float (&sum)[ROWS][COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int g = 0; g < COLUMNS; g++) sum[r][g] = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k += 4)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float4 v = *(const float4*)(from + r * stride + k);
            const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (k + i < N)
#pragma unroll
                    for (int g = 0; g < COLUMNS; g++) sum[r][g] = fmaf(w[g][k + i], e[i], sum[r][g]);
        }
}

// The steps of a cluster, in the order of its direction: from the first real step of its rows up to
// `end`, which follows the last one. Both are 0 without a real step.
struct Steps { int first, end; };

// Returns the steps of `rows` rows, whose flags of T steps each start at `flags`. All threads call
// this function. marks is shared memory of 2 BLOCK / 32 floats.
template <int BLOCK>
DEV Steps find_steps(const unsigned char* flags, int T, int rows, bool from_last, float* marks) {
    const int tid = threadIdx.x, lane = tid & 31;
    int first = T, last = -1;
    for (int step = tid; step < T; step += BLOCK) {
        const int t = from_last ? T - 1 - step : step;
        bool is_real = false;
        for (int r = 0; r < rows; r++) is_real |= flags[(size_t)r * T + t] & 1;
        if (is_real) {
            first = first < step ? first : step;
            last = step;
        }
    }
    for (int turn = 0; turn < 2; turn++) {  // the lanes of a warp, and then the warps of the block
#pragma unroll
        for (int m = 16; m >= 1; m /= 2) {
            const int earlier = bits_of(shuffle_xor(float_of(first), m));
            const int later = bits_of(shuffle_xor(float_of(last), m));
            first = first < earlier ? first : earlier;
            last = last > later ? last : later;
        }
        if (turn == 1) break;
        if (lane == 0) marks[tid / 32] = float_of(first), marks[BLOCK / 32 + tid / 32] = float_of(last);
        __syncthreads();
        first = lane < BLOCK / 32 ? bits_of(marks[lane]) : T;
        last = lane < BLOCK / 32 ? bits_of(marks[BLOCK / 32 + lane]) : -1;
    }
    __syncthreads();  // marks is free again
    return last < 0 ? Steps{0, 0} : Steps{first, last + 1};
}

// meta [2] is T and B; reversed [D] is 1 for a direction from the last step to the first. xw [B,T,D,
// GATES HIDDEN] is x W + b, recurrent [D,HIDDEN,GATES HIDDEN] is U. Bit 0 of flags [D,B,T] marks real
// steps, bit 1 real steps that start with the fresh carry. h0, c0, fresh_h, fresh_c and the mask of
// recurrent dropout are [D,B,HIDDEN]; extra [D,HIDDEN] is the bias of the recurrent product of
// GRU_AFTER. hs [B,T,D,HIDDEN] is the state after each step, unchanged at padding. saved [B,T,D,SAVED
// HIDDEN] is i, f, g, o; r, z, c, product; r, z, c; or r, z, c, p, value. cells [B,T,D,HIDDEN] is c
// before the step. Neither has a meaning at padding, where the backward pass uses no value of them.
template <bool SAVE>
DEV void forward(const int* meta, const unsigned char* reversed, const float* xw, const float* recurrent,
                 const unsigned char* flags, const float* h0, const float* c0, const float* extra,
                 const float* fresh_h, const float* fresh_c, const float* dropout, float* hs,
                 float* h_last, float* c_last, float* saved, float* cells, float* shared) {
    const int T = meta[0], B = meta[1], D = gridDim.y, d = blockIdx.y, tid = threadIdx.x;
    const bool backwards = reversed[d];
    const int rank = blockIdx.x % CLUSTER, b0 = blockIdx.x / CLUSTER * ROWS;
    const int rows = B - b0 < ROWS ? B - b0 : ROWS;
    const unsigned char* flag_at = flags + ((size_t)d * B + b0) * T;
    const Steps steps = find_steps<THREADS>(flag_at, T, rows, backwards, shared);
    const int u = tid / SPLIT, s = tid % SPLIT, j = rank * UNITS + u;
    const bool live = u < UNITS && j < HIDDEN;
    const int jj = live ? j : 0, at = jj / KN * KP + jj % KN;
    constexpr int L = SPLIT / GROUPS;
    const int q = s / L;
    const bool is_lead = live && s % L == 0;
    float* middle = shared + ROWS * STATE;       // r h of GRU_BEFORE and RAU
    float* parts = shared + 2 * ROWS * STATE;    // the softmax sums of the warps of RAU

    float w[EARLY][KN], w_late[1][LATE ? KN : 1];
#pragma unroll
    for (int k = 0; k < KN; k++) {
        const int row = s * KN + k;
        const bool is_weight = live && row < HIDDEN;
        const float* from = recurrent + ((size_t)d * HIDDEN + (is_weight ? row : 0)) * GATES * HIDDEN + jj;
#pragma unroll
        for (int g = 0; g < EARLY; g++) {
            // The sigmoid gates of an LSTM need half of the sum, so their weights are halved once.
            const float scale = KIND == LSTM && g != 2 ? 0.5f : 1.0f;
            w[g][k] = is_weight ? scale * from[block_of(g) * HIDDEN] : 0.0f;
        }
        if (LATE) w_late[0][k] = is_weight ? from[2 * HIDDEN] : 0.0f;
    }
    for (int i = tid; i < FORWARD_MEMORY; i += THREADS) shared[i] = 0.0f;
    arrive();
    wait();
    // The first step of row b0 in arrays [B,T,D], and the distances of rows and of steps there.
    const int t_first = backwards ? T - 1 - steps.first : steps.first;
    const size_t n_first = ((size_t)b0 * T + t_first) * D + d, row = (size_t)T * D;
    const ptrdiff_t way = backwards ? -1 : 1, step_on = way * D;
    const int by_state = (int)step_on * HIDDEN, by_sums = GATES * by_state, by_saved = SAVED * by_state;
    flag_at += t_first;
    bool in[ROWS];
    float h[ROWS], c[ROWS], fresh[ROWS], fresh_cell[ROWS], keep[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        in[r] = ROWS == 1 || r < rows;
        const size_t n = ((size_t)d * B + b0 + (in[r] ? r : 0)) * HIDDEN + jj;
        h[r] = h0[n];
        c[r] = KIND == LSTM ? c0[n] : 0.0f;
        keep[r] = DROPOUT ? dropout[n] : 1.0f;
        // At padding before the first real step the state is the initial one.
        if (live && in[r])
            for (int step = s; step < steps.first; step += SPLIT)
                hs[((ptrdiff_t)(n_first + r * row) + (step - steps.first) * step_on) * HIDDEN + j] = h[r];
        if (RESTARTS) {
            fresh[r] = fresh_h[n];
            fresh_cell[r] = KIND == LSTM ? fresh_c[n] : 0.0f;
            if (in[r] && (flag_at[r * (size_t)T] & 2)) h[r] = fresh[r], c[r] = fresh_cell[r];
        }
        if (live && s < CLUSTER) put(shared + r * STATE + at, s, DROPOUT ? h[r] * keep[r] : h[r]);
    }
    const float bias = KIND == GRU_AFTER ? extra[d * HIDDEN + jj] : 0.0f;

    const float* x_at = xw + n_first * GATES * HIDDEN + block_of(q) * HIDDEN + jj;
    const float* late_at = xw + n_first * GATES * HIDDEN + 2 * HIDDEN + jj;
    float* saved_at = saved + (n_first * SAVED + block_of(q)) * HIDDEN + jj;
    // A lane of each unit stores the state, and one of an LSTM also the cell.
    constexpr int STORES = KIND == LSTM && SAVE ? 2 : 1;
    float* state_at = (q == 1 && STORES == 2 ? cells : hs) + n_first * HIDDEN + jj;
    float x_ahead[PREFETCH][ROWS], late_ahead[PREFETCH][ROWS];
    unsigned char flag_ahead[PREFETCH][ROWS];
    auto load = [&](int p) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            flag_ahead[p][r] = in[r] ? flag_at[r * (size_t)T] : 0;
            x_ahead[p][r] = in[r] && (EARLY == GROUPS || q < EARLY) ? x_at[r * row * GATES * HIDDEN] : 0.0f;
            if (LATE) late_ahead[p][r] = in[r] ? late_at[r * row * GATES * HIDDEN] : 0.0f;
        }
        flag_at += way, x_at += by_sums;
        if (LATE) late_at += by_sums;
    };
#pragma unroll
    for (int p = 0; p < PREFETCH; p++)
        if (steps.first + p < steps.end) load(p);
    arrive();
    wait();

    for (int start = steps.first; start < steps.end; start += ROUND) {
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int step = start + i, p = i % PREFETCH;
            if (step >= steps.end) break;
            // The state is in shared memory twice, or once and r h beside it.
            const int now = LATE ? 0 : i & 1;
            float x[ROWS], x_late[ROWS];
            bool real[ROWS], starts[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                x[r] = x_ahead[p][r], real[r] = flag_ahead[p][r] & 1;
                if (LATE) x_late[r] = late_ahead[p][r];
            }
            if (step + PREFETCH < steps.end) load(p);
            if (RESTARTS) {  // the state for the next step is stored at the end of this step
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    starts[r] = step + 1 < steps.end && (flag_ahead[(p + 1) % PREFETCH][r] & 2);
            }
            float gate[ROWS], second[ROWS], old[ROWS], next[ROWS], output[ROWS], sum[ROWS][EARLY];
            multiply(w, shared + now * ROWS * STATE + s * KP, STATE, sum);
            if constexpr (LATE == 0) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float fourth = EARLY > 3 ? sum[r][EARLY - 1] : 0.0f;
                    const float total = sum_four<SPLIT>(sum[r][0], sum[r][1], sum[r][2], fourth, s);
                    old[r] = c[r];
                    if (KIND == LSTM) {
                        const float scale = q == 2 ? 1.0f : 0.5f;  // one tanh serves all gates
                        const float v = fmaf(fast_tanh(fmaf(x[r], scale, total)), scale, 1.0f - scale);
                        const float in_gate = shuffle<SPLIT>(v, 0), forget = shuffle<SPLIT>(v, L);
                        const float candidate = shuffle<SPLIT>(v, 2 * L), out_gate = shuffle<SPLIT>(v, 3 * L);
                        const float cell = fmaf(forget, c[r], in_gate * candidate);
                        next[r] = out_gate * fast_tanh(cell);
                        c[r] = real[r] ? cell : c[r];
                        gate[r] = v;
                    } else {
                        const float v = fast_sigmoid(total + x[r]);  // r and z in groups 0 and 1
                        const float reset = shuffle<SPLIT>(v, 0), z = shuffle<SPLIT>(v, L);
                        const float product = total + bias;  // that of c, in group 2
                        const float tanh_c = fast_tanh(fmaf(reset, product, x[r]));
                        const float candidate = shuffle<SPLIT>(tanh_c, 2 * L);
                        next[r] = fmaf(z, candidate - h[r], h[r]);
                        if (SAVE) {
                            const float of_c = shuffle<SPLIT>(product, 2 * L);
                            gate[r] = q == 0 ? reset : q == 1 ? z : q == 2 ? candidate : of_c;
                        }
                    }
                }
            } else {
                float update[ROWS], logit[ROWS], value[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    float total;
                    if constexpr (EARLY == 2) total = sum_two<SPLIT>(sum[r][0], sum[r][1], s);
                    else total = sum_four<SPLIT>(sum[r][0], sum[r][1], sum[r][2], sum[r][EARLY - 1], s);
                    total += x[r];
                    const float v = fast_sigmoid(total);
                    const float reset = shuffle<SPLIT>(v, 0);
                    update[r] = shuffle<SPLIT>(v, L);
                    gate[r] = v;
                    if (live && s < CLUSTER) put(middle + r * STATE + at, s, reset * keep[r] * h[r]);
                    if (KIND == RAU) {
                        logit[r] = shuffle<SPLIT>(total, 2 * L);
                        value[r] = shuffle<SPLIT>(total, (GROUPS - 1) * L);
                        // A warp stores the maximum of its logits, and the sum of exponentials.
                        float most = live ? logit[r] : -1e30f;
#pragma unroll
                        for (int m = SPLIT; m < 32; m *= 2) most = fmaxf(most, shuffle_xor(most, m));
                        float mass = live ? fast_exp(logit[r] - most) : 0.0f;
#pragma unroll
                        for (int m = SPLIT; m < 32; m *= 2) mass += shuffle_xor(mass, m);
                        float* part = parts + 2 * (r * PARTS + rank * WARPS + tid / 32);
                        const int lane = tid & 31;
                        if (lane < CLUSTER) put(part, lane, most), put(part + 1, lane, mass);
                    }
                }
                arrive();
                wait();
                float late[ROWS][1];
                multiply(w_late, middle + s * KP, STATE, late);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    second[r] = fast_tanh(sum_lanes<SPLIT>(late[r][0]) + x_late[r]);
                    float candidate = second[r];
                    if (KIND == RAU) {
                        const float* part = parts + 2 * r * PARTS;
                        float most = -1e30f, mass = 0.0f;
                        for (int k = tid & 31; k < PARTS; k += 32) most = fmaxf(most, part[2 * k]);
#pragma unroll
                        for (int m = 16; m >= 1; m /= 2) most = fmaxf(most, shuffle_xor(most, m));
                        for (int k = tid & 31; k < PARTS; k += 32)
                            mass = fmaf(part[2 * k + 1], fast_exp(part[2 * k] - most), mass);
                        mass = sum_lanes<32>(mass);
                        const float p = fast_exp(logit[r] - most) * (SCALE / mass);
                        candidate = 0.5f * (candidate + fast_tanh(p * value[r]));
                        if (q > 1) gate[r] = q == 2 ? p : value[r];
                    }
                    next[r] = fmaf(update[r], candidate - h[r], h[r]);
                }
            }
            float* to = shared + (LATE ? 0 : now ^ 1) * ROWS * STATE + at;  // the copy that is free
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                output[r] = h[r] = real[r] ? next[r] : h[r];
                if (RESTARTS && starts[r]) h[r] = fresh[r], c[r] = fresh_cell[r];
                if (live && s < CLUSTER) put(to + r * STATE, s, DROPOUT ? h[r] * keep[r] : h[r]);
            }
            arrive();
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (is_lead && in[r] && q < STORES)
                    state_at[r * row * HIDDEN] = STORES == 2 && q == 1 ? old[r] : output[r];
                if (SAVE && is_lead && real[r]) {
                    saved_at[r * row * SAVED * HIDDEN] = gate[r];
                    if (LATE && q == 0) saved_at[r * row * SAVED * HIDDEN + 2 * HIDDEN] = second[r];
                }
            }
            state_at += by_state;
            if (SAVE) saved_at += by_saved;
            wait();
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (live && in[r])  // at padding after the last real step the state is the last one
            for (int step = steps.end + s; step < T; step += SPLIT)
                hs[((ptrdiff_t)(n_first + r * row) + (step - steps.first) * step_on) * HIDDEN + j] = h[r];
        if (in[r] && is_lead && q == 0) {
            h_last[((size_t)d * B + b0 + r) * HIDDEN + j] = h[r];
            if (KIND == LSTM) c_last[((size_t)d * B + b0 + r) * HIDDEN + j] = c[r];
        }
    }
}

#if ONLY == 0 || ONLY == 1
KERNEL(THREADS) run_forward(const int* meta, const unsigned char* reversed, const float* xw, const float* recurrent,
                            const unsigned char* flags, const float* h0, const float* c0, const float* extra,
                            const float* fresh_h, const float* fresh_c, const float* dropout, float* hs,
                            float* h_last, float* c_last) {
    SHARED(shared, FORWARD_MEMORY);
    forward<false>(meta, reversed, xw, recurrent, flags, h0, c0, extra, fresh_h, fresh_c, dropout, hs, h_last,
                   c_last, nullptr, nullptr, shared);
}
#endif
#if ONLY == 0 || ONLY == 2
KERNEL(THREADS) run_saving(const int* meta, const unsigned char* reversed, const float* xw, const float* recurrent,
                           const unsigned char* flags, const float* h0, const float* c0, const float* extra,
                           const float* fresh_h, const float* fresh_c, const float* dropout, float* hs,
                           float* h_last, float* c_last, float* saved, float* cells) {
    SHARED(shared, FORWARD_MEMORY);
    forward<true>(meta, reversed, xw, recurrent, flags, h0, c0, extra, fresh_h, fresh_c, dropout, hs, h_last,
                  c_last, saved, cells, shared);
}
#endif

#if ONLY == 0 || ONLY == 3
// before [B,T,D,HIDDEN] is c (LSTM) or h before each step; d_hs are the gradients of the outputs. d_sums
// [B,T,D,GATES HIDDEN] are the gradients of the sums inside the gates, 0 at padding. d_fresh_h and
// d_fresh_c are the gradients of the fresh carry, summed over its steps.
KERNEL(BACK_THREADS) run_backward(const int* meta, const unsigned char* reversed, const float* recurrent,
                                  const unsigned char* flags, const float* saved, const float* before,
                                  const float* dropout, const float* d_hs, const float* d_h_last,
                                  const float* d_c_last, float* d_sums, float* d_h0, float* d_c0,
                                  float* d_fresh_h, float* d_fresh_c) {
    SHARED(shared, BACKWARD_MEMORY);
    const int T = meta[0], B = meta[1], D = gridDim.y, d = blockIdx.y, tid = threadIdx.x;
    const bool from_first = reversed[d];  // against the order of the direction
    const int rank = blockIdx.x % CLUSTER, b0 = blockIdx.x / CLUSTER * ROWS;
    const int rows = B - b0 < ROWS ? B - b0 : ROWS;
    const unsigned char* flag_at = flags + ((size_t)d * B + b0) * T;
    const Steps steps = find_steps<BACK_THREADS>(flag_at, T, rows, !from_first, shared);
    constexpr int L = BACK_SPLIT / 4, COPIES = L / 4;
    const int group = tid / BACK_SPLIT, s = tid % BACK_SPLIT, e = s / L, q = s & 3, copy = s % L / 4;
    const int j = rank * UNITS + group * 4 + e;
    const bool live = group * 4 + e < UNITS && j < HIDDEN;
    const int jj = live ? j : 0, column = q * HIDDEN + jj, at = column / KE * KEP + column % KE;
    const int late_at = jj / KL * KLP + jj % KL;
    float* late_sums = shared + ROWS * EARLY_SUMS;             // of GRU_BEFORE and RAU
    float* parts = late_sums + ROWS * LATE_SUMS;               // the sums of the warps of RAU

    float w[4][KE], w_late[4][LATE ? KL : 1];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int unit = rank * UNITS + group * 4 + i;
        const bool is_unit = group * 4 + i < UNITS && unit < HIDDEN;
        const float* from = recurrent + ((size_t)d * HIDDEN + (is_unit ? unit : 0)) * GATES * HIDDEN;
#pragma unroll
        for (int k = 0; k < KE; k++) {
            const int n = s * KE + k;
            w[i][k] = is_unit && n < EARLY * HIDDEN ? from[block_of(n / HIDDEN) * HIDDEN + n % HIDDEN] : 0.0f;
        }
        if (LATE) {
#pragma unroll
            for (int k = 0; k < KL; k++) {
                const int n = s * KL + k;
                w_late[i][k] = is_unit && n < HIDDEN ? from[2 * HIDDEN + n] : 0.0f;
            }
        }
    }
    for (int i = tid; i < BACKWARD_MEMORY; i += BACK_THREADS) shared[i] = 0.0f;
    // The first step of row b0 in arrays [B,T,D], and the distances of rows and of steps there.
    const int t_first = from_first ? steps.first : T - 1 - steps.first;
    const size_t n_first = ((size_t)b0 * T + t_first) * D + d, row = (size_t)T * D;
    const ptrdiff_t way = from_first ? 1 : -1, step_on = way * D;
    const int by_state = (int)step_on * HIDDEN, by_sums = GATES * by_state, by_saved = SAVED * by_state;
    flag_at += t_first;
    float dh[ROWS], dc[ROWS], fresh[ROWS], fresh_cell[ROWS], keep[ROWS];
    bool in[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        in[r] = ROWS == 1 || r < rows;
        const size_t n = ((size_t)d * B + b0 + (in[r] ? r : 0)) * HIDDEN + jj;
        dh[r] = d_h_last[n];
        dc[r] = KIND == LSTM ? d_c_last[n] : 0.0f;
        keep[r] = DROPOUT ? dropout[n] : 1.0f;
        fresh[r] = fresh_cell[r] = 0.0f;
    }
    const float* gate_at = saved + n_first * SAVED * HIDDEN + column;
    const float* value_at = saved + (n_first * SAVED + 4) * HIDDEN + jj;  // of RAU
    const float* before_at = before + n_first * HIDDEN + jj;
    const ptrdiff_t to_dy = d_hs - before;  // both arrays have the same places
    float* to = d_sums + n_first * GATES * HIDDEN + (q < EARLY ? block_of(q) : 0) * HIDDEN + jj;
    float gate_ahead[PREFETCH][ROWS], value_ahead[PREFETCH][ROWS];
    float before_ahead[PREFETCH][ROWS], dy_ahead[PREFETCH][ROWS];
    unsigned char flag_ahead[PREFETCH][ROWS];
    auto load = [&](int p) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            flag_ahead[p][r] = in[r] ? flag_at[r * (size_t)T] : 0;
            gate_ahead[p][r] = in[r] && (SAVED >= 4 || q < SAVED) ? gate_at[r * row * SAVED * HIDDEN] : 0.0f;
            if (KIND == RAU) value_ahead[p][r] = in[r] ? value_at[r * row * SAVED * HIDDEN] : 0.0f;
            before_ahead[p][r] = in[r] ? before_at[r * row * HIDDEN] : 0.0f;
            dy_ahead[p][r] = in[r] ? before_at[to_dy + r * row * HIDDEN] : 0.0f;
        }
        flag_at += way, gate_at += by_saved, before_at += by_state;
        if (KIND == RAU) value_at += by_saved;
    };
    // The factors of a step that do not depend on the step after it.
    float factor[ROWS], slope[ROWS], forget[ROWS], chain[ROWS], dy[ROWS];
    float of_update[ROWS], of_value[ROWS], reset[ROWS], value[ROWS], attention[ROWS];
    bool real_ahead[ROWS], starts_ahead[ROWS];
    auto prepare = [&](int p) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float v = gate_ahead[p][r], a0 = shuffle<4>(v, 0), a1 = shuffle<4>(v, 1);
            const float a2 = shuffle<4>(v, 2), a3 = shuffle<4>(v, 3), old = before_ahead[p][r];
            dy[r] = dy_ahead[p][r];
            real_ahead[r] = flag_ahead[p][r] & 1, starts_ahead[r] = flag_ahead[p][r] & 2;
            if (KIND == LSTM) {
                const float t = fast_tanh(fmaf(a1, old, a0 * a2));
                slope[r] = a3 * fmaf(-t, t, 1.0f);
                forget[r] = a1;
                const float own = q == 2 ? a0 * fmaf(-a2, a2, 1.0f) : v * (1.0f - v);
                factor[r] = own * (q == 0 ? a2 : q == 1 ? old : q == 2 ? 1.0f : t);
            } else if (KIND == GRU_AFTER) {
                forget[r] = 1.0f - a1;
                factor[r] = q == 1 ? (a2 - old) * a1 * (1.0f - a1) : a1 * fmaf(-a2, a2, 1.0f);
                chain[r] = q == 0 ? a3 * a0 * (1.0f - a0) : a0;
            } else {
                float candidate = a2, share = a1;
                if (KIND == RAU) {
                    value[r] = value_ahead[p][r], attention[r] = a3;
                    const float attended = fast_tanh(a3 * value[r]);
                    candidate = 0.5f * (a2 + attended), share = 0.5f * a1;
                    of_value[r] = share * fmaf(-attended, attended, 1.0f) * a3;
                }
                forget[r] = 1.0f - a1, reset[r] = a0;
                factor[r] = share * fmaf(-a2, a2, 1.0f);
                of_update[r] = (candidate - old) * a1 * (1.0f - a1);
                chain[r] = old * keep[r] * a0 * (1.0f - a0);
            }
        }
    };
#pragma unroll
    for (int p = 0; p < PREFETCH; p++)
        if (steps.first + p < steps.end) load(p);
    if (steps.first < steps.end) prepare(0);
    if (steps.first + PREFETCH < steps.end) load(0);
    arrive();
    wait();

    for (int start = steps.first; start < steps.end; start += ROUND) {
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int step = start + i, following = (i + 1) % PREFETCH;
            if (step >= steps.end) break;
            // The sums are in shared memory twice, or once and those of the late column beside them.
            const int now = LATE ? 0 : i & 1;
            bool real[ROWS], starts[ROWS];
            float out[ROWS], out_late[ROWS], direct[ROWS], through[ROWS], reset_now[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                real[r] = real_ahead[r], starts[r] = starts_ahead[r];
                const float change = dh[r] + dy[r];
                direct[r] = KIND == LSTM ? 0.0f : change * forget[r];
                if constexpr (LATE == 0) {
                    float fed;
                    if (KIND == LSTM) {
                        const float cell = fmaf(change, slope[r], dc[r]);
                        out[r] = fed = (q == 3 ? change : cell) * factor[r];
                        dc[r] = real[r] ? cell * forget[r] : dc[r];
                    } else {
                        out[r] = clip(change * factor[r]);
                        if (q == 0) out[r] = clip(out[r] * chain[r]);
                        fed = q == 2 ? out[r] * chain[r] : out[r];
                    }
                    out[r] = real[r] ? out[r] : 0.0f;
                    fed = real[r] ? fed : 0.0f;
                    if (live && (EARLY == 4 || q < EARLY))
                        for (int k = copy; k < CLUSTER; k += COPIES)
                            put(shared + (now * ROWS + r) * EARLY_SUMS + at, k, fed);
                } else {
                    out_late[r] = real[r] ? clip(change * factor[r]) : 0.0f;
                    reset_now[r] = reset[r];
                    if (live)
                        for (int k = 4 * copy + q; k < CLUSTER; k += L)
                            put(late_sums + r * LATE_SUMS + late_at, k, out_late[r]);
                    const float d_value = KIND == RAU ? change * of_value[r] : 0.0f;
                    const float d_logit = KIND == RAU ? d_value * value[r] : 0.0f;  // p times that of p
                    if (KIND == RAU) {
                        float mass = live && real[r] ? d_logit : 0.0f;
#pragma unroll
                        for (int m = L; m < 32; m *= 2) mass += shuffle_xor(mass, m);
                        const int lane = tid & 31;
                        if (lane < CLUSTER) put(parts + r * BACK_PARTS + rank * BACK_WARPS + tid / 32, lane, mass);
                    }
                    out[r] = q == 1 ? clip(change * of_update[r]) : q == 2 ? d_logit : d_value;
                }
            }
            if constexpr (LATE) {
                arrive();
                wait();
                float sum[ROWS][4];
                multiply(w_late, late_sums + s * KLP, LATE_SUMS, sum);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float of_reset = sum_four<BACK_SPLIT>(sum[r][0], sum[r][1], sum[r][2], sum[r][3], s);
                    through[r] = of_reset * reset_now[r];
                    if (q == 0) out[r] = clip(of_reset * chain[r]);
                    if (KIND == RAU) {
                        float mass = 0.0f;
                        for (int k = tid & 31; k < BACK_PARTS; k += 32) mass += parts[r * BACK_PARTS + k];
                        mass = sum_lanes<32>(mass);
                        if (q == 2) out[r] = fmaf(-attention[r], mass * (1.0f / SCALE), out[r]);
                    }
                    out[r] = real[r] ? out[r] : 0.0f;
                    if (live && q < EARLY)
                        for (int k = copy; k < CLUSTER; k += COPIES) put(shared + r * EARLY_SUMS + at, k, out[r]);
                }
            }
            arrive();
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (in[r] && live && copy == 0) {
                    if (EARLY == 4 || q < EARLY) to[r * row * GATES * HIDDEN] = out[r];
                    if (LATE && q == 0) to[r * row * GATES * HIDDEN + 2 * HIDDEN] = out_late[r];
                }
            to += by_sums;
            prepare(following);  // of no use after the last step
            if (step + 1 + PREFETCH < steps.end) load(following);
            wait();
            float sum[ROWS][4];
            multiply(w, shared + now * ROWS * EARLY_SUMS + s * KEP, EARLY_SUMS, sum);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float total = sum_four<BACK_SPLIT>(sum[r][0], sum[r][1], sum[r][2], sum[r][3], s);
                if (LATE) total += through[r];
                if (DROPOUT) total *= keep[r];
                dh[r] = real[r] ? total + direct[r] : dh[r];
                if (RESTARTS && starts[r]) {
                    fresh[r] += dh[r], fresh_cell[r] += dc[r];
                    dh[r] = dc[r] = 0.0f;
                }
            }
        }
    }
    if (CLUSTER > 1) { arrive(); wait(); }  // the blocks of a cluster end together
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!in[r]) continue;
        for (int i = tid; i < GATES * UNITS; i += BACK_THREADS) {  // 0 at padding before and after the steps
            const int unit = rank * UNITS + i % UNITS;
            if (unit >= HIDDEN) continue;
            for (int step = 0; step < T; step++) {
                if (step == steps.first) step = steps.end;
                if (step == T) break;
                const ptrdiff_t n = (ptrdiff_t)(n_first + r * row) + (step - steps.first) * step_on;
                d_sums[(n * GATES + i / UNITS) * HIDDEN + unit] = 0.0f;
            }
        }
        if (live && copy == 0 && q == 0) {
            const size_t n = ((size_t)d * B + b0 + r) * HIDDEN + j;
            d_h0[n] = dh[r];
            if (KIND == LSTM) d_c0[n] = dc[r];
            if (RESTARTS) d_fresh_h[n] = fresh[r];
            if (RESTARTS && KIND == LSTM) d_fresh_c[n] = fresh_cell[r];
        }
    }
}
#endif
