// Bounds of blocks: see blocks.cpp for what they are good for.
#include "bounds.hpp"

#include <algorithm>
#include <limits>

#include "tiles.hpp"

namespace axil {
namespace blocking {

template <std::size_t, class Leaf>
AXIL_INLINE void one_read_lanes(const Leaf* cells, const std::int64_t* starts, std::size_t trees, const float* entries,
                                float constant, float* sums) {
    float total[block_rows];
    for (std::size_t r = 0; r < block_rows; ++r) total[r] = constant;
    for (std::size_t t = 0; t < trees; ++t, cells += block_rows) {
        const float* own = entries + starts[t];
        for (std::size_t r = 0; r < block_rows; ++r) total[r] += own[cells[r]];
    }
    std::copy_n(total, block_rows, sums);
}

template <std::size_t W>
AXIL_INLINE void one_level_lanes(const Level& level, const float* entries, const float* constant, float* bounds) {
    using Row = Vectors<lanes, W, float>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    for (std::size_t block = 0; block < level.blocks(); ++block, bounds += lanes) {
        V high[n], low[n];
        AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) high[i] = low[i] = load<V>(constant + i * Row::lanes);
        for (const std::uint32_t* at = level.of(block); *at;) {
            const std::size_t leaves = at[0], trees = at[1];
            at += 2;
            for (std::size_t t = 0; t < trees; ++t) {
                V most[n], least[n];
                const float* own = entries + entry_of(*at++) * lanes;
                AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) most[i] = least[i] = load<V>(own + i * Row::lanes);
                for (std::size_t l = 1; l < leaves; ++l) {
                    own = entries + entry_of(*at++) * lanes;
                    AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
                        const V entry = load<V>(own + i * Row::lanes);
                        most[i] = most[i] < entry ? entry : most[i];
                        least[i] = entry < least[i] ? entry : least[i];
                    }
                }
                AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
                    high[i] += most[i];
                    low[i] += least[i];
                }
            }
        }
        AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
            const V other = -low[i];
            store(bounds + i * Row::lanes, high[i] < other ? other : high[i]);
        }
    }
}

// For each set of parts, what takes those out of account that are not in it: added to a largest, taken from a smallest.
struct Absent {
    alignas(64) float of[1 << branches][branches];

    Absent() {
        for (std::size_t set = 0; set < 1 << branches; ++set)
            for (std::size_t i = 0; i < branches; ++i)
                of[set][i] = set >> i & 1 ? 0.0f : -std::numeric_limits<float>::infinity();
    }
};
const Absent absent;

template <std::size_t W>
AXIL_INLINE void one_block_lanes(const std::uint32_t* at, const float* entries, float constant, float* bounds) {
    using Row = Vectors<branches, W, float>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V high[n], low[n];
    constexpr float nothing = std::numeric_limits<float>::infinity();
    float alone = constant;  // of trees with one leaf in all the parts
    AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) high[i] = low[i] = V{};
    while (*at) {
        const std::size_t leaves = at[0], trees = at[1];
        at += 2;
        if (leaves == 1) {
            for (std::size_t t = 0; t < trees; ++t) alone += entries[entry_of(*at++)];
            continue;
        }
        for (std::size_t t = 0; t < trees; ++t) {
            V most[n], least[n];
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) most[i] = V{} - nothing, least[i] = V{} + nothing;
            for (std::size_t l = 0; l < leaves; ++l, ++at) {
                const float* without = absent.of[parts_of(*at)];
                const float entry = entries[entry_of(*at)];
                AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
                    const V out = load<V>(without + i * Row::lanes), up = out + entry, down = entry - out;
                    most[i] = most[i] < up ? up : most[i];
                    least[i] = down < least[i] ? down : least[i];
                }
            }
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
                high[i] += most[i];
                low[i] += least[i];
            }
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
        const V up = high[i] + alone, down = -(low[i] + alone);
        store(bounds + i * Row::lanes, up < down ? down : up);
    }
}

AXIL_VERSIONS(one_level, (const Level& level, const float* entries, const float* constant, float* bounds),
              (level, entries, constant, bounds))
AXIL_VERSIONS(one_block, (const std::uint32_t* at, const float* entries, float constant, float* bounds),
              (at, entries, constant, bounds))
#define AXIL_READ(LEAF)                                                                                    \
    AXIL_VERSIONS(one_read,                                                                                \
                  (const LEAF* cells, const std::int64_t* starts, std::size_t trees, const float* entries, \
                   float constant, float* sums),                                                           \
                  (cells, starts, trees, entries, constant, sums))
AXIL_LEAVES(AXIL_READ)
#undef AXIL_READ

#define AXIL_READ(LEAF)                                                                                               \
    void read(const LEAF* cells, const std::int64_t* starts, std::size_t trees, const float* entries, float constant, \
              float* sums) {                                                                                          \
        one_read(cells, starts, trees, entries, constant, sums);                                                      \
    }
AXIL_LEAVES(AXIL_READ)
#undef AXIL_READ

void bound_level(const Level& level, const float* entries, const float* constant, float* bounds) {
    one_level(level, entries, constant, bounds);
}

void bound_parts(const std::uint32_t* list, const float* entries, float constant, float* bounds) {
    one_block(list, entries, constant, bounds);
}

}  // namespace blocking
}  // namespace axil
