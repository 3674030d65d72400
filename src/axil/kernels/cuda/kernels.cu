// The kernels on an NVIDIA GPU, compiled at first use for one type of cells (CELL).
//
// Layout: cells (trees, n) as on the host; states and tables have a row's columns side by side. A warp is split into
// 32 / lanes groups: `lanes` threads take neighbouring columns, the groups take rows in turn. No sum depends on the order in
// which threads run: floating-point sums go over sorted rows, segment by segment, and what is counted by atomics is integer.

typedef long long Size;
typedef unsigned long long Fixed;

struct Lane {
    Size column;   // of the state
    int group;     // of the warp's groups
    int groups;
    bool real;     // whether there is such a column
};

__device__ __forceinline__ Lane lane_of(Size lanes, Size columns) {
    Lane lane;
    lane.column = (Size)blockIdx.y * lanes + (threadIdx.x & ((int)lanes - 1));
    lane.group = threadIdx.x / (int)lanes;
    lane.groups = 32 / (int)lanes;
    lane.real = lane.column < columns;
    return lane;
}

__device__ __forceinline__ Size warp_of() { return (Size)blockIdx.x * blockDim.y + threadIdx.y; }
__device__ __forceinline__ Size warps() { return (Size)gridDim.x * blockDim.y; }

__device__ __forceinline__ double over_groups(double sum, Size lanes) {
    for (int away = (int)lanes; away < 32; away *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, away);
    return sum;
}

__device__ __forceinline__ double of_trees(const CELL* __restrict__ cells, Size n, const int* __restrict__ trees, Size n_trees,
                                           const Size* __restrict__ starts, const double* __restrict__ table, Size columns,
                                           Size row, Size column) {
    double sum = 0;
    for (Size k = 0; k < n_trees; ++k) {
        const Size t = trees[k];
        sum += table[(starts[t] + cells[t * n + row]) * columns + column];
    }
    return sum;
}

// state[j] += a_j sum_{t in trees} table[cell_t(j)]
extern "C" __global__ void apply_trees(const CELL* __restrict__ cells, Size n, Size columns, Size lanes,
                                       const int* __restrict__ trees, Size n_trees, const Size* __restrict__ starts,
                                       const double* __restrict__ table, const double* __restrict__ a, double* __restrict__ state) {
    const Lane lane = lane_of(lanes, columns);
    if (!lane.real) return;
    for (Size j = warp_of() * lane.groups + lane.group; j < n; j += warps() * lane.groups) {
        const double sum = of_trees(cells, n, trees, n_trees, starts, table, columns, j, lane.column);
        state[j * columns + lane.column] += a ? a[j] * sum : sum;
    }
}

// The same on the way through the rows of one tree, sorted by cell, and the sums of g_j state[j] over every segment of them.
// Several rows are under way at a time; they are added in turn.
#define ABREAST 4
extern "C" __global__ void gather_segments(const CELL* __restrict__ cells, Size n, Size columns, Size lanes,
                                           const int* __restrict__ trees, Size n_trees, const Size* __restrict__ starts,
                                           const double* __restrict__ table, const double* __restrict__ a,
                                           const unsigned* __restrict__ order, const unsigned* __restrict__ segments,
                                           Size n_segments, const double* __restrict__ g, double* __restrict__ state,
                                           double* __restrict__ partial) {
    const Lane lane = lane_of(lanes, columns);
    for (Size segment = warp_of(); segment < n_segments; segment += warps()) {
        const unsigned last = segments[segment + 1];
        double sum = 0;
        if (lane.real) {
            unsigned i = segments[segment] + lane.group;
            const unsigned step = lane.groups;
            for (; i + (ABREAST - 1) * step < last; i += ABREAST * step) {
                Size row[ABREAST];
                double value[ABREAST];
#pragma unroll
                for (int r = 0; r < ABREAST; ++r) row[r] = order[i + r * step];
#pragma unroll
                for (int r = 0; r < ABREAST; ++r) value[r] = __ldcs(state + row[r] * columns + lane.column);
                if (n_trees) {
#pragma unroll
                    for (int r = 0; r < ABREAST; ++r) {
                        const double own = of_trees(cells, n, trees, n_trees, starts, table, columns, row[r], lane.column);
                        value[r] += a ? a[row[r]] * own : own;
                    }
#pragma unroll
                    for (int r = 0; r < ABREAST; ++r) __stcs(state + row[r] * columns + lane.column, value[r]);
                }
#pragma unroll
                for (int r = 0; r < ABREAST; ++r) sum += g ? g[row[r]] * value[r] : value[r];
            }
            for (; i < last; i += step) {
                const Size row = order[i];
                double value = state[row * columns + lane.column];
                if (n_trees) {
                    const double own = of_trees(cells, n, trees, n_trees, starts, table, columns, row, lane.column);
                    value += a ? a[row] * own : own;
                    state[row * columns + lane.column] = value;
                }
                sum += g ? g[row] * value : value;
            }
        }
        sum = over_groups(sum, lanes);
        if (lane.real && lane.group == 0) partial[segment * columns + lane.column] = sum;
    }
}

// The same for many columns: a lane takes pairs of them, 64 apart, so that a warp reads whole lines of a row, and trees are
// known ahead, so that all their look-ups are under way at a time.
template <int PAIRS, int TREES>
__device__ void gather_wide(const CELL* __restrict__ cells, Size n, Size columns, const int* __restrict__ trees,
                            const Size* __restrict__ starts, const double* __restrict__ table, const double* __restrict__ a,
                            const unsigned* __restrict__ order, const unsigned* __restrict__ segments, Size n_segments,
                            const double* __restrict__ g, double* __restrict__ state, double* __restrict__ partial) {
    constexpr int rows = TREES ? 2 : 4, held = TREES ? TREES : 1;
    const Size at = (Size)blockIdx.y * 64 * PAIRS + 2 * threadIdx.x;
    const double* tables[held];
    const CELL* own[held];
#pragma unroll
    for (int k = 0; k < TREES; ++k) {
        tables[k] = table + starts[trees[k]] * columns + at;
        own[k] = cells + trees[k] * n;
    }
    for (Size segment = warp_of(); segment < n_segments; segment += warps()) {
        const unsigned last = segments[segment + 1];
        double2 sum[PAIRS];
#pragma unroll
        for (int q = 0; q < PAIRS; ++q) sum[q] = make_double2(0, 0);
        for (unsigned i = segments[segment]; i < last; i += rows) {
            Size row[rows];
            double2 value[rows][PAIRS];
#pragma unroll
            for (int r = 0; r < rows; ++r) row[r] = order[min(i + r, last - 1)];
#pragma unroll
            for (int r = 0; r < rows; ++r)
#pragma unroll
                for (int q = 0; q < PAIRS; ++q) value[r][q] = __ldcs((const double2*)(state + row[r] * columns + at + 64 * q));
            if (TREES) {
#pragma unroll
                for (int r = 0; r < rows; ++r) {
                    double2 added[PAIRS];
#pragma unroll
                    for (int q = 0; q < PAIRS; ++q) added[q] = make_double2(0, 0);
#pragma unroll
                    for (int k = 0; k < TREES; ++k) {
                        const double* line = tables[k] + (Size)own[k][row[r]] * columns;
#pragma unroll
                        for (int q = 0; q < PAIRS; ++q) {
                            const double2 pair = *(const double2*)(line + 64 * q);
                            added[q].x += pair.x;
                            added[q].y += pair.y;
                        }
                    }
                    const double weight = a ? a[row[r]] : 1.0;
#pragma unroll
                    for (int q = 0; q < PAIRS; ++q) {
                        value[r][q].x += a ? weight * added[q].x : added[q].x;
                        value[r][q].y += a ? weight * added[q].y : added[q].y;
                    }
                }
#pragma unroll
                for (int r = 0; r < rows; ++r)
                    if (i + r < last)
#pragma unroll
                        for (int q = 0; q < PAIRS; ++q) __stcs((double2*)(state + row[r] * columns + at + 64 * q), value[r][q]);
            }
#pragma unroll
            for (int r = 0; r < rows; ++r)
                if (i + r < last) {
                    const double weight = g ? g[row[r]] : 1.0;
#pragma unroll
                    for (int q = 0; q < PAIRS; ++q) {
                        sum[q].x += g ? weight * value[r][q].x : value[r][q].x;
                        sum[q].y += g ? weight * value[r][q].y : value[r][q].y;
                    }
                }
        }
#pragma unroll
        for (int q = 0; q < PAIRS; ++q) *(double2*)(partial + segment * columns + at + 64 * q) = sum[q];
    }
}

#define GATHER_WIDE(PAIRS, TREES)                                                                                        \
    extern "C" __global__ void gather_wide_##PAIRS##_##TREES(                                                            \
        const CELL* cells, Size n, Size columns, const int* trees, const Size* starts, const double* table,              \
        const double* a, const unsigned* order, const unsigned* segments, Size n_segments, const double* g,              \
        double* state, double* partial) {                                                                                \
        gather_wide<PAIRS, TREES>(cells, n, columns, trees, starts, table, a, order, segments, n_segments, g, state,     \
                                  partial);                                                                              \
    }
#define GATHER_TREES(TREES) GATHER_WIDE(1, TREES) GATHER_WIDE(2, TREES)
GATHER_TREES(0)
GATHER_TREES(1)
GATHER_TREES(2)
GATHER_TREES(3)
GATHER_TREES(4)

// sums[c] = the sum over the segments of cell c, which are first[c] .. first[c + 1] - 1 of all trees', from `begin` on.
// A block takes one cell at a time; its groups take segments in turn and are added up in order.
extern "C" __global__ void combine_segments(const double* __restrict__ partial, Size columns, Size lanes,
                                            const unsigned* __restrict__ first, Size begin, Size n_cells,
                                            double* __restrict__ sums) {
    __shared__ double found[8][32];
    const Lane lane = lane_of(lanes, columns);
    const Size step = (Size)lane.groups * blockDim.y;
    for (Size c = blockIdx.x; c < n_cells; c += gridDim.x) {
        const Size last = first[c + 1] - begin;
        Size i = first[c] - begin + (Size)threadIdx.y * lane.groups + lane.group;
        double sum = 0;
        if (lane.real) {
            for (; i + 3 * step < last; i += 4 * step) {
                double value[4];
#pragma unroll
                for (int r = 0; r < 4; ++r) value[r] = partial[(i + r * step) * columns + lane.column];
                sum += (value[0] + value[1]) + (value[2] + value[3]);
            }
            for (; i < last; i += step) sum += partial[i * columns + lane.column];
        }
        found[threadIdx.y][threadIdx.x] = over_groups(sum, lanes);
        __syncthreads();
        if (threadIdx.y == 0 && lane.real && lane.group == 0) {
            double total = 0;
            for (int w = 0; w < blockDim.y; ++w) total += found[w][threadIdx.x];
            sums[c * columns + lane.column] = total;
        }
        __syncthreads();
    }
}

// The residuals of one tree's rows, sorted by cell, summed segment by segment; then the score takes the tree's value.
extern "C" __global__ void replay_segments(const unsigned* __restrict__ order, const unsigned* __restrict__ segments,
                                           const unsigned* __restrict__ cell_of_segment, Size n_segments,
                                           const double* __restrict__ values, const double* __restrict__ targets,
                                           const double* __restrict__ weights, Size single, Size single_score,
                                           double* __restrict__ score, double* __restrict__ partial) {
    for (Size segment = warp_of(); segment < n_segments; segment += warps()) {
        const double value = values[cell_of_segment[segment]];
        double sum = 0;
        for (unsigned i = segments[segment] + threadIdx.x; i < segments[segment + 1]; i += 32) {
            const unsigned j = order[i];
            double residual = targets[j] - score[j];
            if (single) residual = (float)residual;
            if (weights) {
                residual = __dmul_rn(residual, weights[j]);
                if (single) residual = (float)residual;
            }
            sum += residual;
            const double after = score[j] + value;
            score[j] = single_score ? (double)(float)after : after;
        }
        sum = over_groups(sum, 1);
        if (threadIdx.x == 0) partial[segment] = sum;
    }
}

// Sorting by cell: the rows of each chunk by cell, counts[cell][chunk] of the trees from `tree` on; one warp a chunk.
extern "C" __global__ void count_cells(const CELL* __restrict__ cells, Size n, Size tree, Size chunk, Size n_chunks,
                                       const Size* __restrict__ starts, unsigned* __restrict__ counts) {
    extern __shared__ unsigned seen[];
    const int t = (int)tree + blockIdx.y, n_cells = (int)(starts[t + 1] - starts[t]);
    for (int c = threadIdx.x; c < n_cells; c += 32) seen[c] = 0;
    __syncwarp();
    const Size first = (Size)blockIdx.x * chunk, last = first + chunk < n ? first + chunk : n;
    for (Size j = first + threadIdx.x; j < last; j += 32) atomicAdd(seen + cells[t * n + j], 1u);
    __syncwarp();
    unsigned* out = counts + (starts[t] - starts[tree]) * n_chunks + blockIdx.x;
    for (int c = threadIdx.x; c < n_cells; c += 32) out[c * n_chunks] = seen[c];
}

// order[tree]: the rows sorted by cell, equal ones as they come; `ends` are the running sums of `counts`.
extern "C" __global__ void scatter_rows(const CELL* __restrict__ cells, Size n, Size tree, Size chunk, Size n_chunks,
                                        const Size* __restrict__ starts, const unsigned* __restrict__ counts,
                                        const Size* __restrict__ ends, unsigned* __restrict__ order) {
    extern __shared__ unsigned next[];
    const int t = (int)tree + blockIdx.y, n_cells = (int)(starts[t + 1] - starts[t]);
    const Size own = (starts[t] - starts[tree]) * n_chunks + blockIdx.x;
    for (int c = threadIdx.x; c < n_cells; c += 32)
        next[c] = (unsigned)(ends[own + c * n_chunks] - counts[own + c * n_chunks] - (Size)blockIdx.y * n);
    __syncwarp();
    const Size first = (Size)blockIdx.x * chunk, last = first + chunk < n ? first + chunk : n;
    for (Size j = first; j < last; j += 32) {
        const Size row = j + threadIdx.x;
        const bool real = row < last;
        const int c = real ? (int)cells[t * n + row] : -1;
        const unsigned alike = __match_any_sync(0xffffffffu, c);
        const unsigned before = __popc(alike & ((1u << threadIdx.x) - 1));
        const unsigned place = real ? next[c] + before : 0;
        __syncwarp();
        if (real && before == 0) next[c] += __popc(alike);
        __syncwarp();
        if (real) order[t * n + place] = (unsigned)row;
    }
}

// out[j - first] = w_j (constant + sum_t table[cell_t(j)]), 16 columns at a time. The table's lines of a run of trees lie in
// shared memory. Eight neighbouring lanes read eight different pairs of their lines, so that they meet in no bank.
#define TILE 16
#define TILE_THREADS 512
#define TILE_ROWS 2
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 1)
    read_out_tile(const CELL* __restrict__ cells, Size n, const Size* __restrict__ starts, const int* __restrict__ runs,
                  Size n_runs, const double* __restrict__ table, Size table_step, Size columns,
                  const double* __restrict__ constant, const double* __restrict__ w, Size first, Size rows,
                  double* __restrict__ out, Size out_step) {
    extern __shared__ __align__(16) double tile[];
    const Size at = (Size)blockIdx.y * TILE;
    const int width = columns - at < TILE ? (int)(columns - at) : TILE, turn = threadIdx.x & 7;
    const bool even = width == TILE && table_step % 2 == 0 && (size_t)table % 16 == 0;
    const bool whole = width == TILE && out_step % 2 == 0 && (size_t)out % 16 == 0;
    bool loaded = false;
    for (Size from = (Size)blockIdx.x * TILE_THREADS * TILE_ROWS; from < rows; from += (Size)gridDim.x * TILE_THREADS * TILE_ROWS) {
        double2 sum[TILE_ROWS][TILE / 2];
        Size row[TILE_ROWS];
        const CELL* own[TILE_ROWS];
#pragma unroll
        for (int r = 0; r < TILE_ROWS; ++r) {
            row[r] = from + r * TILE_THREADS + threadIdx.x;
            own[r] = cells + first + (row[r] < rows ? row[r] : rows - 1);
#pragma unroll
            for (int k = 0; k < TILE / 2; ++k) sum[r][k] = make_double2(0, 0);
        }
        for (Size run = 0; run < n_runs; ++run) {
            const Size begin = runs[run], end = runs[run + 1], base = starts[begin];
            if (!loaded || n_runs > 1) {
                __syncthreads();
                const int count = (int)(starts[end] - base) * TILE;
                if (even) {
#pragma unroll 8
                    for (int i = 2 * threadIdx.x; i < count; i += 2 * TILE_THREADS)
                        *(double2*)(tile + i) = *(const double2*)(table + (base + i / TILE) * table_step + at + i % TILE);
                } else {
#pragma unroll 8
                    for (int i = threadIdx.x; i < count; i += TILE_THREADS)
                        tile[i] = i % TILE < width ? table[(base + i / TILE) * table_step + at + i % TILE] : 0.0;
                }
                __syncthreads();
                loaded = true;
            }
#pragma unroll 4
            for (Size t = begin; t < end; ++t) {
                const int start = (int)(starts[t] - base);
#pragma unroll
                for (int r = 0; r < TILE_ROWS; ++r) {
                    const double2* line = (const double2*)(tile + (start + (int)own[r][t * n]) * TILE);
#pragma unroll
                    for (int k = 0; k < TILE / 2; ++k) {
                        const double2 pair = line[k ^ turn];
                        sum[r][k].x += pair.x;
                        sum[r][k].y += pair.y;
                    }
                }
            }
        }
#pragma unroll
        for (int r = 0; r < TILE_ROWS; ++r)
            if (row[r] < rows) {
                const double weight = w ? w[first + row[r]] : 1.0;
#pragma unroll
                for (int k = 0; k < TILE / 2; ++k) {
                    const int column = 2 * (k ^ turn);
                    double* to = out + row[r] * out_step + at + column;
                    double2 value = sum[r][k];
                    if (column < width) value.x = weight * (constant[at + column] + value.x);
                    if (column + 1 < width) value.y = weight * (constant[at + column + 1] + value.y);
                    if (whole) {
                        *(double2*)to = value;
                    } else {
                        if (column < width) to[0] = value.x;
                        if (column + 1 < width) to[1] = value.y;
                    }
                }
            }
    }
}

// The same with factors (trees, rows) besides, or for tables that shared memory does not hold.
extern "C" __global__ void read_out_rows(const CELL* __restrict__ cells, Size n, const int* __restrict__ trees, Size n_trees,
                                         const Size* __restrict__ starts, const double* __restrict__ table, Size table_step,
                                         Size columns, Size lanes,
                                         const double* __restrict__ constant, const double* __restrict__ w,
                                         const double* __restrict__ factors, Size first, Size rows, double* __restrict__ out,
                                         Size out_step) {
    const Lane lane = lane_of(lanes, columns);
    if (!lane.real) return;
    for (Size r = warp_of() * lane.groups + lane.group; r < rows; r += warps() * lane.groups) {
        double sum = 0;
        for (Size t = 0; t < n_trees; ++t) {
            const double value = table[(starts[t] + cells[trees[t] * n + first + r]) * table_step + lane.column];
            sum += factors ? factors[t * rows + r] * value : value;
        }
        if (constant) sum = constant[lane.column] + sum;
        out[r * out_step + lane.column] = w ? w[first + r] * sum : sum;
    }
}

// out[j - first, s] = the weights of the trees in which row j has the cell of query s; queries are (trees, columns).
extern "C" __global__ void match_rows(const CELL* __restrict__ cells, Size n, Size n_trees, const CELL* __restrict__ queries,
                                      Size columns, Size lanes, const double* __restrict__ w, Size first, Size rows,
                                      double* __restrict__ out) {
    const Lane lane = lane_of(lanes, columns);
    if (!lane.real) return;
    for (Size r = warp_of() * lane.groups + lane.group; r < rows; r += warps() * lane.groups) {
        double sum = 0;
        for (Size t = 0; t < n_trees; ++t)
            if (cells[t * n + first + r] == queries[t * columns + lane.column]) sum += w ? w[t] : 1.0;
        out[r * columns + lane.column] = sum;
    }
}

// The same for bytes, all trees alike: a thread takes four neighbouring rows and COUNTED queries, and compares four bytes at a time.
#define COUNTED 16
#define BYTE_TREES 255  // that bytes count
extern "C" __global__ void __launch_bounds__(256)
    match_bytes(const CELL* __restrict__ cells, Size n, Size n_trees, const CELL* __restrict__ queries, Size columns, Size first,
                  Size rows, double* __restrict__ out) {
    __shared__ __align__(16) unsigned asked[BYTE_TREES][COUNTED];  // a query's byte four times
    const Size at = (Size)blockIdx.y * COUNTED, row = 4 * ((Size)blockIdx.x * blockDim.x + threadIdx.x);
    unsigned sums[COUNTED][2] = {};  // of rows 0 and 2, and of rows 1 and 3
    for (Size from = 0; from < n_trees; from += BYTE_TREES) {
        const int trees = n_trees - from < BYTE_TREES ? (int)(n_trees - from) : BYTE_TREES;
        __syncthreads();
        for (int i = threadIdx.x; i < trees * COUNTED; i += blockDim.x) {
            const Size column = at + i % COUNTED;
            asked[i / COUNTED][i % COUNTED] = column < columns ? 0x01010101u * queries[(from + i / COUNTED) * columns + column] : 0;
        }
        __syncthreads();
        unsigned counts[COUNTED] = {};
#pragma unroll 2
        for (int t = 0; t < trees; ++t) {
            const CELL* own = cells + (from + t) * n + first + row;
            unsigned four = 0;
#pragma unroll
            for (int r = 0; r < 4; ++r)
                if (row + r < rows) four |= (unsigned)own[r] << 8 * r;
#pragma unroll
            for (int q = 0; q < COUNTED; ++q) {
                const unsigned apart = four ^ asked[t][q];  // a byte is zero where the leaf is the same
                counts[q] += ~(((apart & 0x7f7f7f7fu) + 0x7f7f7f7fu) | apart) >> 7 & 0x01010101u;
            }
        }
#pragma unroll
        for (int q = 0; q < COUNTED; ++q) {
            sums[q][0] += counts[q] & 0x00ff00ffu;
            sums[q][1] += counts[q] >> 8 & 0x00ff00ffu;
        }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r)
        if (row + r < rows)
#pragma unroll
            for (int q = 0; q < COUNTED; ++q)
                if (at + q < columns) out[(row + r) * columns + at + q] = (double)(sums[q][r % 2] >> 16 * (r / 2) & 0xffffu);
}

// Largest |scale_j block[j, s]| of each of `turns` sets of rows, the rows j = turn, turn + turns, ..; (columns, turns)
extern "C" __global__ void largest_of_turns(const double* __restrict__ block, Size rows, Size columns, Size lanes,
                                            const double* __restrict__ scale, Size turns, double* __restrict__ largest) {
    const Lane lane = lane_of(lanes, columns);
    if (!lane.real) return;
    for (Size turn = warp_of() * lane.groups + lane.group; turn < turns; turn += warps() * lane.groups) {
        double most = -1;
#pragma unroll 8
        for (Size j = turn; j < rows; j += turns) {
            const double value = block[j * columns + lane.column];
            most = fmax(most, fabs(scale ? scale[j] * value : value));
        }
        largest[lane.column * turns + turn] = most;
    }
}

// All entries that reach their column's bound: how many, and the first `room` that come, in any order.
extern "C" __global__ void collect_largest(const double* __restrict__ block, Size rows, Size columns, Size lanes,
                                           const double* __restrict__ scale, const double* __restrict__ bound, Size room,
                                           unsigned* __restrict__ found, unsigned* __restrict__ places,
                                           double* __restrict__ values) {
    const Lane lane = lane_of(lanes, columns);
    if (!lane.real) return;
    const double least = bound[lane.column];
    for (Size j = warp_of() * lane.groups + lane.group; j < rows; j += warps() * lane.groups) {
        const double value = block[j * columns + lane.column];
        if (fabs(scale ? scale[j] * value : value) >= least) {
            const unsigned at = atomicAdd(found + lane.column, 1u);
            if (at < room) {
                places[lane.column * room + at] = (unsigned)j;
                values[lane.column * room + at] = value;
            }
        }
    }
}

// Blocks of alike rows, BLOCK_ROWS in each; `cells` has the rows in the order of the blocks. See kernels/cuda/blocks.py.
#define BLOCK_ROWS 256
#define LAST_LEAF 0x80000000u
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define FIRST_BLOCKS 8  // that are opened before all others are looked at

// Numbers of places (rows, AXES), in steps from 0 to 255, along a curve on which places nearby are near each other.
#define AXES 8
extern "C" __global__ void along_curve(const double* __restrict__ places, Size rows, Fixed* __restrict__ numbers) {
    for (Size row = (Size)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (Size)gridDim.x * blockDim.x) {
        unsigned steps[AXES];
        Fixed number = 0;
#pragma unroll
        for (int a = 0; a < AXES; ++a) steps[a] = (unsigned)fmin(fmax(places[row * AXES + a], 0.0), 255.0);
        for (int bit = 7; bit >= 0; --bit)
#pragma unroll
            for (int a = 0; a < AXES; ++a) number = number << 1 | (steps[a] >> bit & 1);
        numbers[row] = number;
    }
}

// out[t, i] = cells[t, order[i]]
extern "C" __global__ void take_rows(const CELL* __restrict__ cells, Size n, const Size* __restrict__ order, Size rows,
                                     CELL* __restrict__ out) {
    const CELL* own = cells + blockIdx.y * n;
    for (Size i = (Size)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += (Size)gridDim.x * blockDim.x)
        out[blockIdx.y * rows + i] = own[order[i]];
}

// How many leaves of each tree occur in each block; then, once `ends` has the running sums of these counts, which ones these
// are, as entries of a table. The last leaf of a tree is marked.
extern "C" __global__ void list_leaves(const CELL* __restrict__ cells, Size n, Size n_trees, const Size* __restrict__ starts,
                                       unsigned* __restrict__ counts, const Size* __restrict__ ends,
                                       unsigned* __restrict__ lists) {
    extern __shared__ unsigned seen[];  // a bit per leaf
    const Size t = blockIdx.y, block = blockIdx.x, row = block * BLOCK_ROWS + threadIdx.x;
    const int lane = threadIdx.x, words = (int)(starts[t + 1] - starts[t] + 31) / 32;
    for (int i = lane; i < words; i += BLOCK_ROWS) seen[i] = 0;
    __syncthreads();
    if (row < n) atomicOr(seen + cells[t * n + row] / 32, 1u << cells[t * n + row] % 32);
    __syncthreads();
    if (lane >= 32) return;
    unsigned listed = 0;
    unsigned* list = lists ? lists + ends[block * n_trees + t] - counts[block * n_trees + t] : nullptr;
    for (int from = 0; from < words; from += 32) {
        unsigned bits = from + lane < words ? seen[from + lane] : 0, place = __popc(bits);
        for (int away = 1; away < 32; away *= 2) {
            const unsigned before = __shfl_up_sync(0xffffffffu, place, away);
            if (lane >= away) place += before;
        }
        const unsigned all = listed + __shfl_sync(0xffffffffu, place, 31);
        for (place = listed + place - __popc(bits); list && bits; bits &= bits - 1)
            list[place++] = (unsigned)starts[t] + 32 * (from + lane) + __ffs(bits) - 1;
        listed = all;
    }
    __syncwarp();
    if (lane) return;
    if (list) list[listed - 1] |= LAST_LEAF;
    else counts[block * n_trees + t] = listed;
}

// largest[block]: the largest |factor| of its rows, infinite where one is no number.
extern "C" __global__ void block_factors(const double* __restrict__ factors, const Size* __restrict__ order, Size n,
                                         Size n_blocks, double* __restrict__ largest) {
    for (Size block = (Size)blockIdx.x * blockDim.x + threadIdx.x; block < n_blocks; block += (Size)gridDim.x * blockDim.x) {
        double most = 0;
#pragma unroll 8
        for (Size i = block * BLOCK_ROWS; i < min(n, (block + 1) * BLOCK_ROWS); ++i) {
            const double size = fabs(factors[order[i]]);
            most = size == size ? fmax(most, size) : INFINITE;
        }
        largest[block] = most;
    }
}

// bounds[s, block]: what no |scale_j w_j (constant + sum_t table[cell_t(j)])| of the block exceeds. Sums have the order of the
// read-out, and rounding keeps the order of numbers: nothing is rounded below what it bounds. w and scale are the blocks' largest.
extern "C" __global__ void bound_blocks(const unsigned* __restrict__ lists, const Size* __restrict__ ends, Size n_trees,
                                        Size n_blocks, const double* __restrict__ table, Size columns,
                                        const double* __restrict__ constant, const double* __restrict__ w,
                                        const double* __restrict__ scale, double* __restrict__ bounds) {
    const Size column = (Size)blockIdx.y * 32 + threadIdx.x, read = column < columns ? column : columns - 1;
    const double* own = table + read;
    for (Size block = warp_of(); block < n_blocks; block += warps()) {
        const Size end = ends[(block + 1) * n_trees - 1];
        double high = 0, low = 0, most = -INFINITE, least = INFINITE;
        for (Size from = block ? ends[block * n_trees - 1] : 0; from < end; from += 32) {
            const unsigned mine = from + threadIdx.x < end ? lists[from + threadIdx.x] : 0;
            const int count = end - from < 32 ? (int)(end - from) : 32;
#pragma unroll 8
            for (int i = 0; i < count; ++i) {
                const unsigned met = __shfl_sync(0xffffffffu, mine, i);
                const double entry = own[(Size)(met & ~LAST_LEAF) * columns];
                most = fmax(most, entry);
                least = fmin(least, entry);
                if (met & LAST_LEAF) {
                    high += most;
                    low += least;
                    most = -INFINITE;
                    least = INFINITE;
                }
            }
        }
        high = constant[read] + high;
        low = constant[read] + low;
        double size = fmax(high, -low);
        if (w) size = w[block] * size;
        if (scale) size = scale[block] * size;
        const bool known = high == high && low == low && size == size;
        if (column < columns) bounds[column * n_blocks + block] = known ? size : INFINITE;
    }
}

// The k largest |scale_j w_j (constant + sum_t table[s, cell_t(j)])| of each query s, k at most BLOCK_ROWS, equal ones by row.
// A block of threads takes a query and a thread a row of each block of rows that it opens: first some with high bounds, then all
// others whose bounds reach the k-th largest so far. done[s]: it took no more than `most`.
extern "C" __global__ void __launch_bounds__(BLOCK_ROWS)
    search_blocks(const CELL* __restrict__ cells, Size n, Size n_trees, const Size* __restrict__ starts,
                  const Size* __restrict__ order, Size n_blocks, double* bounds, const double* __restrict__ table,
                  const double* __restrict__ constant, const double* __restrict__ w, const double* __restrict__ scale, Size k,
                  Size most, double* __restrict__ values, unsigned* __restrict__ rows, unsigned char* __restrict__ done) {
    __shared__ double sizes[2 * BLOCK_ROWS], found[2 * BLOCK_ROWS], near[BLOCK_ROWS];
    __shared__ unsigned numbers[2 * BLOCK_ROWS], hits[BLOCK_ROWS / 32], who[BLOCK_ROWS];
    const unsigned nobody = 0xffffffffu;
    const int me = threadIdx.x;
    const Size s = blockIdx.x;
    const double* own = table + s * starts[n_trees];
    double* bound = bounds + s * n_blocks;
    double least = -1;  // the k-th largest so far
    sizes[me] = -1;
    numbers[me] = nobody;
    const auto before = [&](int a, int b) {
        return sizes[a] > sizes[b] || (sizes[a] == sizes[b] && numbers[a] < numbers[b]);
    };
    const auto open = [&](Size block) {
        const Size i = block * BLOCK_ROWS + me;
        double size = -1, value = 0;
        unsigned row = nobody;
        if (i < n) {
            double sum = 0;
#pragma unroll 8
            for (Size t = 0; t < n_trees; ++t) sum += own[starts[t] + cells[t * n + i]];
            row = (unsigned)order[i];
            value = constant[s] + sum;
            if (w) value = w[row] * value;
            size = fabs(scale ? scale[row] * value : value);
        }
        const bool counts = row != nobody && size >= least;
        if (!__syncthreads_or(counts)) return;
        sizes[BLOCK_ROWS + me] = counts ? size : -1;
        found[BLOCK_ROWS + me] = value;
        numbers[BLOCK_ROWS + me] = counts ? row : nobody;
        for (int length = 2; length <= 2 * BLOCK_ROWS; length *= 2)
            for (int away = length / 2; away > 0; away /= 2) {
                __syncthreads();
                const int a = 2 * me - (me & (away - 1)), b = a + away;
                if (a & length ? before(a, b) : before(b, a)) {
                    const double size_a = sizes[a], found_a = found[a];
                    const unsigned number_a = numbers[a];
                    sizes[a] = sizes[b], found[a] = found[b], numbers[a] = numbers[b];
                    sizes[b] = size_a, found[b] = found_a, numbers[b] = number_a;
                }
            }
        __syncthreads();
        least = sizes[k - 1];
    };

    double high = -INFINITE;  // of every BLOCK_ROWS-th block the one with the largest bound
    Size highest = 0, opened = 0;
    for (Size b = me; b < n_blocks; b += BLOCK_ROWS)
        if (bound[b] > high) high = bound[highest = b];
    for (; opened < FIRST_BLOCKS; ++opened) {
        near[me] = high;
        who[me] = me;
        for (int half = BLOCK_ROWS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (me < half && near[me + half] > near[me]) near[me] = near[me + half], who[me] = who[me + half];
        }
        __syncthreads();
        const bool mine = who[0] == me, any = near[0] >= least && near[0] >= 0;
        __syncthreads();
        if (!any) break;
        if (mine) {
            hits[0] = (unsigned)highest;
            bound[highest] = high = -INFINITE;
        }
        __syncthreads();
        open(hits[0]);
        __syncthreads();
    }
    for (Size from = 0; from < n_blocks; from += BLOCK_ROWS) {
        const double next = from + me < n_blocks ? bound[from + me] : -INFINITE;
        const unsigned hit = __ballot_sync(0xffffffffu, next >= least);
        if (!__syncthreads_or(hit != 0)) continue;
        near[me] = next;
        if (me % 32 == 0) hits[me / 32] = hit;
        __syncthreads();
        for (int i = 0; i < BLOCK_ROWS; ++i) {
            if (!(hits[i / 32] >> i % 32 & 1) || near[i] < least) continue;
            if (opened++ >= most) {
                if (me == 0) done[s] = 0;
                return;
            }
            open(from + i);
        }
        __syncthreads();
    }
    if (me < k) {
        values[s * k + me] = found[me];
        rows[s * k + me] = numbers[me];
    }
    if (me == 0) done[s] = 1;
}

// Co-occurrence of the trees of two tiles, in units: counts, or weights as multiples of a power of two, exact either way.
// The shared table has the cells of tile a by those of tile b; what it counts is added to `out` (step apart).
#define TILE_TREES 8
template <class Unit>
__device__ void cooccur(const CELL* __restrict__ cells, Size n, const Size* __restrict__ starts, Size tree,
                        const int* __restrict__ tiles, const int* __restrict__ pairs, const Fixed* __restrict__ units,
                        Size rows_per_block, Fixed* __restrict__ out, Size step, Unit* shared) {
    const int a = pairs[2 * blockIdx.x], b = pairs[2 * blockIdx.x + 1];
    const Size a0 = tree + tiles[a], a1 = tree + tiles[a + 1], b0 = tree + tiles[b], b1 = tree + tiles[b + 1];
    const int wide = (int)(starts[b1] - starts[b0]), high = (int)(starts[a1] - starts[a0]);
    for (int i = threadIdx.x; i < high * wide; i += blockDim.x) shared[i] = 0;
    __syncthreads();
    const Size first = blockIdx.y * rows_per_block, last = first + rows_per_block < n ? first + rows_per_block : n;
    for (Size j = first + threadIdx.x; j < last; j += blockDim.x) {
        const Unit unit = units ? (Unit)units[j] : (Unit)1;
        int line[TILE_TREES];
#pragma unroll
        for (int k = 0; k < TILE_TREES; ++k)
            if (a0 + k < a1) line[k] = ((int)(starts[a0 + k] - starts[a0]) + cells[(a0 + k) * n + j]) * wide;
        for (Size t = b0; t < b1; ++t) {
            const int column = (int)(starts[t] - starts[b0]) + cells[t * n + j];
#pragma unroll
            for (int k = 0; k < TILE_TREES; ++k)
                if (a0 + k < a1 && a0 + k < t) atomicAdd(shared + line[k] + column, unit);
        }
    }
    __syncthreads();
    Fixed* own = out + (starts[a0] - starts[tree]) * step + starts[b0] - starts[tree];
    for (int i = threadIdx.x; i < high * wide; i += blockDim.x)
        if (shared[i]) atomicAdd(own + (Size)(i / wide) * step + i % wide, (Fixed)shared[i]);
}

extern "C" __global__ void cooccur_counts(const CELL* cells, Size n, const Size* starts, Size tree, const int* tiles,
                                          const int* pairs, const Fixed* units, Size rows_per_block, Fixed* out, Size step) {
    extern __shared__ unsigned counted[];
    cooccur<unsigned>(cells, n, starts, tree, tiles, pairs, units, rows_per_block, out, step, counted);
}

extern "C" __global__ void cooccur_units(const CELL* cells, Size n, const Size* starts, Size tree, const int* tiles,
                                         const int* pairs, const Fixed* units, Size rows_per_block, Fixed* out, Size step) {
    extern __shared__ Fixed summed[];
    cooccur<Fixed>(cells, n, starts, tree, tiles, pairs, units, rows_per_block, out, step, summed);
}

// Trees whose cells by cells no shared memory holds: one row and pair of trees after the other.
extern "C" __global__ void cooccur_apart(const CELL* __restrict__ cells, Size n, const Size* __restrict__ starts, Size tree,
                                         Size last, const Fixed* __restrict__ units, Fixed* __restrict__ out, Size step) {
    const Size s = tree + blockIdx.y;
    for (Size j = (Size)blockIdx.x * blockDim.x + threadIdx.x; j < n; j += (Size)gridDim.x * blockDim.x) {
        const Fixed unit = units ? units[j] : 1;
        Fixed* own = out + (starts[s] - starts[tree] + cells[s * n + j]) * step;
        for (Size t = s + 1; t < last; ++t) atomicAdd(own + starts[t] - starts[tree] + cells[t * n + j], unit);
    }
}

// Multiples of a unit as numbers, in the same place.
extern "C" __global__ void units_to_numbers(double* __restrict__ out, Size count, double unit) {
    for (Size i = (Size)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (Size)gridDim.x * blockDim.x)
        out[i] = (double)(long long)((const Fixed*)out)[i] * unit;
}

// out[j - first] = sum_{s <= t} factors[s, j - first] table[cell_s(j), cell_t(j)]
extern "C" __global__ void pair_sums(const CELL* __restrict__ cells, Size n, Size n_trees, const Size* __restrict__ starts,
                                     const double* __restrict__ table, const double* __restrict__ factors, Size first,
                                     Size rows, double* __restrict__ out) {
    const Size n_cells = starts[n_trees];
    for (Size r = (Size)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (Size)gridDim.x * blockDim.x) {
        const CELL* own = cells + first + r;
        double total = 0;
        for (Size s = 0; s < n_trees; ++s) {
            const double* line = table + (starts[s] + own[s * n]) * n_cells;
            double sum = 0;
            for (Size t = s; t < n_trees; ++t) sum += line[starts[t] + own[t * n]];
            total += factors ? factors[s * rows + r] * sum : sum;
        }
        out[r] = total;
    }
}

// A row of this weight in its leaf, and the leaf without it; see `Rows.deletions`.
struct Factors {
    double kept, drawn, weight, stiffer, constant;
};

__device__ Factors factors_of(const double* rule, const double* shift, double weight) {
    const double scale = rule[2], l2 = rule[3], steps = rule[4];
    double left = rule[0] - weight, after = 0;
    if (!(left > rule[1])) left = 0;
    const bool moving = scale > 0;
    if (moving && (!shift || left > 0)) {
        after = left + l2 > 0 ? 1.0 / (left + l2) : 0.0;
        if (steps > 1 && left > 0 && isfinite(l2)) after = (1.0 - pow(l2 * after, steps)) / left;
    }
    const double stiffer = steps > 1 ? 1.0 / after - 1.0 / scale : -weight;
    return {moving ? after / scale : 1.0, scale * weight, weight, after > 0 ? stiffer : 0.0,
            shift && moving && after == 0 ? *shift / scale : 0.0};
}

// Each row through the trees in equations of its own, one thread per row and output; see `Rows.deletions`. Some trees are met
// together, so that what the row has added so far is read once for all of them; sums come in the order of the trees. Threads go
// along side by side, and what their trees look up in the table stays in the nearest cache. `kept` has a column per thread: the
// additions where they are not wanted, then the values where other trees than the last are looked at again.
#define TOGETHER 4
extern "C" __global__ void deletions(const CELL* __restrict__ cells, Size n, Size n_trees, const Size* __restrict__ starts,
                                     const Size* __restrict__ leaf_starts, Size levels, const double* __restrict__ table,
                                     Size table_step, const double* __restrict__ rules, const double* __restrict__ shifts,
                                     const double* __restrict__ draws, const double* __restrict__ weights,
                                     const double* __restrict__ values, const double* __restrict__ slopes,
                                     const double* __restrict__ steps, Size in_turn, const double* __restrict__ drifts,
                                     const double* __restrict__ start, const double* __restrict__ base,
                                     const double* __restrict__ changed, Size first, Size rows, Size outputs,
                                     double* __restrict__ residuals, double* __restrict__ added, double* __restrict__ kept) {
    const Size k = blockIdx.y, slots = (Size)gridDim.x * blockDim.x, slot = (Size)blockIdx.x * blockDim.x + threadIdx.x;
    const Size of_output = n_trees * slots * ((added ? 0 : 1) + (in_turn ? 0 : 1));
    double* own_values = kept + k * of_output + (added ? 0 : n_trees * slots) + slot;
    for (Size r = slot; r < rows; r += slots) {
        const CELL* own = cells + first + r;
        double* sent = added ? added + k * n_trees * rows + r : kept + k * of_output + slot;
        const Size sent_step = added ? rows : slots;
        const auto leaf_of = [&](Size t) {
            const unsigned cell = own[t * n];
            return leaf_starts[t] + (levels == 1 ? cell : cell % (unsigned)(leaf_starts[t + 1] - leaf_starts[t]));
        };
        const double from_base = base[k * rows + r], shifted = changed[k * rows + r];
        double residual = start[k * rows + r];
        for (Size t = 0; t < n_trees; t += TOGETHER) {
            Size leaf[TOGETHER];
            double sum[TOGETHER];
#pragma unroll
            for (int p = 0; p < TOGETHER; ++p) {
                leaf[p] = leaf_of(t + p < n_trees ? t + p : t);
                sum[p] = 0;
            }
#pragma unroll 4
            for (Size s = 0; s < t; ++s) {
                const double* column = table + leaf_of(s);
                const double x = sent[s * sent_step];
#pragma unroll
                for (int p = 0; p < TOGETHER; ++p) sum[p] += column[leaf[p] * table_step] * x;
            }
#pragma unroll
            for (int p = 0; p < TOGETHER; ++p) {
                if (t + p >= n_trees) break;
                if (residuals) residuals[(k * (n_trees + 1) + t + p) * rows + r] = residual;
                const Size level = levels == 1 ? 0 : own[(t + p) * n] / (leaf_starts[t + p + 1] - leaf_starts[t + p]);
                const double weight = draws[level] * (weights ? weights[r] : 1.0);
                const Factors f = factors_of(rules + 5 * leaf[p], shifts ? shifts + leaf[p] : nullptr, weight);
                const double seen = values[leaf[p] * outputs + k] + shifted * slopes[leaf[p]] + sum[p];
                const double value = f.kept * (seen - f.drawn * residual);
                const double x = -(f.weight * residual + f.stiffer * value + f.constant);
                sent[(t + p) * sent_step] = x;
#pragma unroll
                for (int q = p + 1; q < TOGETHER; ++q) sum[q] += table[leaf[q] * table_step + leaf[p]] * x;
                const double* step = steps + (t + p) * n_trees;
                if (!in_turn) {
                    own_values[(t + p) * slots] = value;
                    for (Size s = 0; s < t + p; ++s)
                        if (step[s] != 0) residual -= step[s] * own_values[s * slots];
                }
                if (step[t + p] != 0) residual -= step[t + p] * value;
                if (drifts[t + p] != 0) residual -= drifts[t + p] * from_base;
            }
        }
        if (residuals) residuals[(k * (n_trees + 1) + n_trees) * rows + r] = residual;
    }
}

// out[t, j - first] = draws[c] (r_j - levels[c]), then r_j -= steps[c], with c = cell_t(j)
extern "C" __global__ void residual_factors(const CELL* __restrict__ cells, Size n, Size n_trees, const Size* __restrict__ starts,
                                            const double* __restrict__ steps, const double* __restrict__ levels,
                                            const double* __restrict__ draws, const double* __restrict__ start, Size first,
                                            Size rows, double* __restrict__ out) {
    for (Size r = (Size)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (Size)gridDim.x * blockDim.x) {
        double residual = start[r];
        for (Size t = 0; t < n_trees; ++t) {
            const Size c = starts[t] + cells[t * n + first + r];
            out[t * rows + r] = draws[c] * (residual - levels[c]);
            residual -= steps[c];
        }
    }
}

// Rounds of a fit; see Program in axil/kernels. Tables of terms and moves begin at `table` among all.
struct Term {
    Size tree, output, place, table, fresh;  // fresh: the first of its place
};

struct Move {
    Size tree, output, table;
};

// out[place, j - first] += scales[c] g draws[tree, j] for the terms of every round, then the moves of the states. A thread takes
// a row. No product is fused with a sum: the same bits as on the cores.
extern "C" __global__ void gradient_factors(const CELL* __restrict__ cells, Size n, const Size* __restrict__ rounds, Size n_rounds,
                                            const Term* __restrict__ terms, const double* __restrict__ scales,
                                            const Move* __restrict__ moves, const double* __restrict__ steps,
                                            const unsigned char* __restrict__ draws, Size link, Size product, Size outputs,
                                            const double* __restrict__ intercepts, const double* __restrict__ slopes,
                                            Size first, Size rows, double* __restrict__ state, double* __restrict__ out) {
    for (Size r = (Size)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (Size)gridDim.x * blockDim.x) {
        const CELL* own = cells + first + r;
        for (Size round = 0; round < n_rounds; ++round) {
            double total = 0, g = 0;
            if (link == 2)
                for (Size k = 0; k < outputs; ++k) total += state[k * rows + r];
            const Size begin = rounds[2 * round], end = rounds[2 * round + 2];
            for (Size i = begin; i < end; ++i) {
                const Term term = terms[i];
                if (i == begin || term.output != terms[i - 1].output) {
                    const Size at = term.output * rows + r;
                    const double s = state[at], linked = link == 2 ? s / total : link == 1 ? 1.0 / (1.0 + s) : s;
                    g = intercepts[at] + __dmul_rn(slopes[at], linked);
                }
                double put = __dmul_rn(scales[term.table + own[term.tree * n]], g);
                if (draws) put = __dmul_rn(put, (double)draws[term.tree * n + first + r]);
                double* place = out + term.place * rows + r;
                *place = term.fresh ? put : *place + put;
            }
            for (Size i = rounds[2 * round + 1]; i < rounds[2 * round + 3]; ++i) {
                const Move move = moves[i];
                const double step = steps[move.table + own[move.tree * n]];
                double* s = state + move.output * rows + r;
                *s = product ? __dmul_rn(*s, step) : *s + step;
            }
        }
    }
}

// partial[chunk, cell, group]: the factors of a chunk's rows, added one after the other. A warp takes one tree and chunk; of the
// rows that it reads at a time the first of each cell and group adds those of all.
extern "C" __global__ void factor_sums(const CELL* __restrict__ cells, Size n, const int* __restrict__ trees, Size n_trees,
                                       const Size* __restrict__ starts, const double* __restrict__ factors,
                                       const Size* __restrict__ codes, Size groups, Size first, Size rows, Size chunk,
                                       double* partial) {
    __shared__ Size keys[32];
    __shared__ double values[32];
    const int lane = threadIdx.x;
    const Size t = blockIdx.x, begin = (Size)blockIdx.y * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    const CELL* own = cells + trees[t] * n + first;
    double* sums = partial + (Size)blockIdx.y * starts[n_trees] * groups;
    for (Size r = begin + lane; r - lane < end; r += 32) {
        const Size key = r < end ? (starts[t] + own[r]) * groups + codes[r] : -1;
        keys[lane] = key;
        values[lane] = r < end ? factors[t * rows + r] : 0.0;
        __syncwarp();
        bool leads = key >= 0;
        for (int i = 0; i < lane; ++i) leads = leads && keys[i] != key;
        if (leads) {
            double sum = sums[key];
            for (int i = lane; i < 32; ++i)
                if (keys[i] == key) sum += values[i];
            sums[key] = sum;
        }
        __syncwarp();
    }
}

// Leaves of new rows. A value's code in a view is its rank among the column's thresholds, or what stands for it where it is
// missing, zero or a category; a tree is walked from its root by comparing codes with ranks.
struct View {
    Size column, kind, first, count;
};

template <class Value>
__device__ void code_values(const Value* __restrict__ values, Size rows, Size row_step, Size column_step,
                            const Size* __restrict__ columns, const double* __restrict__ thresholds,
                            const Size* __restrict__ view_starts, const View* __restrict__ views,
                            const unsigned char* __restrict__ outcomes, Size single, Size strict, double zero,
                            unsigned short* __restrict__ codes, unsigned* __restrict__ infinite) {
    const Size c = blockIdx.y, feature = columns[2 * c], begin = columns[2 * c + 1], count = columns[2 * c + 3] - begin;
    const double* own = thresholds + begin;
    const auto rank_of = [&](double value) {
        Size low = 0, high = count;  // the first threshold that is not below the value
        while (low < high) {
            const Size middle = (low + high) / 2;
            if (strict ? own[middle] <= value : own[middle] < value) low = middle + 1;
            else high = middle;
        }
        return (unsigned short)low;
    };
    const unsigned short rank_of_zero = rank_of(0.0);
    for (Size row = (Size)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (Size)gridDim.x * blockDim.x) {
        double value = (double)values[row * row_step + feature * column_step];
        if (single) value = (double)(float)value;
        const bool missing = value != value;
        if (isinf(value)) atomicOr(infinite, 1u);
        if (fabs(value) <= zero) value = 0;
        const unsigned short rank = missing ? 0 : rank_of(value);
        for (Size v = view_starts[c]; v < view_starts[c + 1]; ++v) {
            const View view = views[v];
            unsigned short code = rank;
            if (view.kind == 1 && missing) code = (unsigned short)count;
            if (view.kind == 2 && missing) code = rank_of_zero;
            if (view.kind == 3 && (missing || value == 0)) code = 0;
            if (view.kind == 4 && (missing || value == 0)) code = (unsigned short)count;
            if (view.kind == 5) {
                Size place = view.count;
                if (missing) place = view.count + 1;
                else if (value > -1 && value < (double)view.count) place = (Size)value;
                code = outcomes[view.first + place];
            }
            codes[v * rows + row] = code;
        }
    }
}

#define CODE_VALUES(NAME, VALUE)                                                                                          \
    extern "C" __global__ void code_##NAME(const VALUE* values, Size rows, Size row_step, Size column_step,               \
                                           const Size* columns, const double* thresholds, const Size* view_starts,        \
                                           const View* views, const unsigned char* outcomes, Size single, Size strict,    \
                                           double zero, unsigned short* codes, unsigned* infinite) {                      \
        code_values<VALUE>(values, rows, row_step, column_step, columns, thresholds, view_starts, views, outcomes,        \
                           single, strict, zero, codes, infinite);                                                        \
    }
CODE_VALUES(float32, float)
CODE_VALUES(float64, double)

extern "C" __global__ void walk_trees(const unsigned short* __restrict__ codes, Size rows, const int4* __restrict__ nodes,
                                      const Size* __restrict__ starts, CELL* __restrict__ out) {
    const Size t = blockIdx.y, begin = starts[t], end = starts[t + 1];
    for (Size row = (Size)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (Size)gridDim.x * blockDim.x) {
        int at = begin < end ? 0 : -1;  // a tree of one leaf has no nodes
        while (at >= 0) {
            const int4 node = nodes[begin + at];  // view, rank, left, right
            at = codes[(Size)node.x * rows + row] <= node.y ? node.z : node.w;
        }
        out[t * rows + row] = (CELL)~at;
    }
}
