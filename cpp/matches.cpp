// matches: in which trees rows share their leaf with queries, as the sum of the weights of those trees.
// top_matches: the k largest of these sums for every query, without writing the others down.
//
// Leaf numbers are compared a whole vector register at a time, for several queries while the rows' leaves are in the nearest
// cache. What is counted are whole units of the trees' weights, in lanes as narrow as the leaf numbers; they are moved to wider
// sums before a lane can overflow. Units are rounded and bound the sum from above: few rows reach the k-th largest so far, and
// only these are added up in double, tree by tree.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "buffer.hpp"
#include "ranking.hpp"
#include "tiles.hpp"

namespace axil {
namespace matching {

using ranking::Largest;

constexpr std::size_t abreast = 8;                        // queries whose lanes stay in registers
constexpr std::size_t strip = 128;                        // rows that lie together, tree by tree
constexpr std::size_t block_bytes = 256 * 1024;           // of leaf numbers that stay in the second-level cache
constexpr std::size_t least_chunk = 2048, most_chunks = 4096;
constexpr std::size_t most_queries = 512;                 // between two moments at which an interrupt takes effect
constexpr std::size_t looked_at = 64;                     // entries after which bounds are looked at
constexpr std::size_t units_per_tree = 8, least_units = 250;  // on average, and of all trees together
constexpr std::uint32_t most_units = 255;                 // of an entry

// A tree and the units that it counts for. A heavy tree has several entries.
struct Entry {
    std::uint32_t tree, units;
    std::uint32_t left;  // units of all entries after it
};

// Entries whose units fit into a lane together.
struct Segment {
    std::size_t first, last;
};

struct Plan {
    std::vector<Entry> entries;
    std::vector<Segment> segments;
    double unit = 1, slack = 0, excess = 0;  // a sum is at most unit * units + slack, and at least unit * units - excess
};

Plan plan_of(const double* weights, std::size_t trees, std::uint64_t lane) {
    Plan plan;
    std::vector<std::uint32_t> order(trees);
    std::iota(order.begin(), order.end(), 0u);
    if (weights) {  // heavy trees first: what is left after them decides little
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
        double total = 0;
        for (std::size_t t = 0; t < trees; ++t) total += weights[t];
        const auto units = static_cast<double>(std::max(units_per_tree * trees, least_units));
        plan.unit = std::max(total / units, std::numeric_limits<double>::min());
        plan.slack = plan.excess = 1e-9 * total;  // more than the roundings of a sum
    }
    for (const std::uint32_t t : order) {
        const double units = weights ? std::floor(weights[t] / plan.unit + 0.5) : 1.0;
        if (weights) {
            plan.slack += std::max(0.0, weights[t] - plan.unit * units);
            plan.excess += std::max(0.0, plan.unit * units - weights[t]);
        }
        for (auto open = static_cast<std::uint32_t>(units); open > 0;) {
            const std::uint32_t own = std::min(open, most_units);
            plan.entries.push_back({t, own, 0});
            open -= own;
        }
    }
    std::uint32_t left = 0;
    for (std::size_t e = plan.entries.size(); e-- > 0;) {
        plan.entries[e].left = left;
        left += plan.entries[e].units;
    }
    for (std::size_t first = 0; first < plan.entries.size();) {
        std::size_t last = first;
        for (std::uint64_t units = 0; last < plan.entries.size() && units + plan.entries[last].units <= lane;)
            units += plan.entries[last++].units;
        plan.segments.push_back({first, last});
        first = last;
    }
    return plan;
}

// Some rows, strip by strip, (trees, strip) each; spare rows have some leaf.
template <class Leaf>
struct Block {
    const Leaf* leaves;
    std::size_t trees, strips;
};

// A leaf number in every lane of a word, which processors copy to all words of a register while they load it.
using Word = std::uint32_t;

template <class Leaf>
constexpr Word word_of(Leaf leaf) {
    return sizeof(Leaf) == 1 ? leaf * 0x01010101u : sizeof(Leaf) == 2 ? leaf * 0x00010001u : leaf;
}

// Some queries beside each other.
struct Queried {
    const Word* leaves;           // (trees, abreast)
    std::uint32_t need[abreast];  // units that a row must have to be of account
};

template <std::size_t W, class V, class Leaf>
AXIL_INLINE void add_matches(V& found, const V& leaf, Word word, Leaf units) {
    if constexpr (W == 1) {
        found = static_cast<Leaf>(found + (leaf == static_cast<Leaf>(word) ? units : 0));
    } else {
        using Words = typename Vector<Word, sizeof(V) / sizeof(Word)>::type;
        const V asked = reinterpret_cast<V>(Words{} + word);
        if constexpr (W == 8)  // a masked addition
            found = (leaf == asked) ? found + units : found;
        else
            found += reinterpret_cast<V>(leaf == asked) & units;
    }
}

// Whether any lane has this many units.
template <class V, class Leaf>
AXIL_INLINE bool reaches(const V& found, Leaf units) {
    if constexpr (sizeof(V) == sizeof(Leaf)) {
        return found >= units;
    } else {
        const auto there = found >= units;
        std::uint64_t words[sizeof(V) / 8], any = 0;
        std::memcpy(words, &there, sizeof words);
        for (const std::uint64_t word : words) any |= word;
        return any != 0;
    }
}

// Registers of rows that a query's leaf is compared with, as many as there is room for beside the other queries' lanes.
template <std::size_t W, class Leaf>
struct Registers {
    static constexpr std::size_t count = W == 8 ? 2 : 1;
    static constexpr std::size_t lanes = W == 1 ? 1 : W * sizeof(double) / sizeof(Leaf);
    static constexpr std::size_t rows = count * lanes;
    using type = typename Vector<Leaf, lanes>::type;
};

// Counts (abreast, strip) of units for as many rows as the registers hold; hits[q] where any of them has the units that query q
// needs. Counts of rows that cannot have them may be too low.
template <std::size_t W, class Leaf>
AXIL_INLINE void count_rows(const Plan& plan, const Leaf* own, const Queried& group, std::uint32_t* counts,
                            std::uint8_t* hits) {
    using R = Registers<W, Leaf>;
    using V = typename R::type;
    for (std::size_t q = 0; q < abreast; ++q) std::fill_n(counts + q * strip, R::rows, 0u);
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
        const Segment& segment = plan.segments[s];
        V found[abreast][R::count] = {};
        for (std::size_t first = segment.first; first < segment.last;) {
            const std::size_t last = std::min(first + looked_at, segment.last);
            for (; first < last; ++first) {
                const Entry& entry = plan.entries[first];
                const Leaf units = static_cast<Leaf>(entry.units);
                const Word* asked = group.leaves + entry.tree * abreast;
                V leaf[R::count];
                AXIL_UNROLL
                for (std::size_t i = 0; i < R::count; ++i) leaf[i] = load<V>(own + entry.tree * strip + i * R::lanes);
                AXIL_UNROLL
                for (std::size_t q = 0; q < abreast; ++q) {
                    AXIL_UNROLL
                    for (std::size_t i = 0; i < R::count; ++i) add_matches<W>(found[q][i], leaf[i], asked[q], units);
                }
            }
            if (s > 0) continue;  // what was counted before is not in the lanes
            bool open = false;
            const std::uint32_t left = plan.entries[last - 1].left;
            AXIL_UNROLL
            for (std::size_t q = 0; q < abreast; ++q) {
                const std::uint32_t need = group.need[q];
                if (need > left && need - left > std::numeric_limits<Leaf>::max()) continue;
                AXIL_UNROLL
                for (std::size_t i = 0; i < R::count; ++i)
                    open |= need <= left || reaches(found[q][i], static_cast<Leaf>(need - left));
            }
            if (!open) return;
        }
        alignas(64) Leaf moved[abreast][R::rows];
        AXIL_UNROLL
        for (std::size_t q = 0; q < abreast; ++q) {
            AXIL_UNROLL
            for (std::size_t i = 0; i < R::count; ++i) store(moved[q] + i * R::lanes, found[q][i]);
        }
        bool open = false;
        for (std::size_t q = 0; q < abreast; ++q) {
            std::uint32_t most = 0;
            for (std::size_t i = 0; i < R::rows; ++i) most = std::max(most, counts[q * strip + i] += moved[q][i]);
            open |= most + plan.entries[segment.last - 1].left >= group.need[q];
            if (s + 1 == plan.segments.size()) hits[q] |= most >= group.need[q];
        }
        if (!open) return;
    }
    if (plan.segments.empty()) std::fill_n(hits, abreast, std::uint8_t{1});  // no tree has a unit
}

// Counts (strips, abreast, strip), and hits (strips, abreast).
template <std::size_t W, class Leaf>
AXIL_INLINE void count_lanes(const Plan& plan, const Block<Leaf>& block, const Queried& group, std::uint32_t* counts,
                             std::uint8_t* hits) {
    for (std::size_t s = 0; s < block.strips; ++s, counts += abreast * strip, hits += abreast) {
        const Leaf* own = block.leaves + s * block.trees * strip;
        std::fill_n(hits, abreast, std::uint8_t{0});
        for (std::size_t r = 0; r < strip; r += Registers<W, Leaf>::rows)
            count_rows<W>(plan, own + r, group, counts + r, hits);
    }
}

#define AXIL_COUNT(LEAF)                                                                                      \
    AXIL_VERSIONS(count,                                                                                      \
                  (const Plan& plan, const Block<LEAF>& block, const Queried& group,                    \
                   std::uint32_t* counts, std::uint8_t* hits),                                                \
                  (plan, block, group, counts, hits))
AXIL_LEAVES(AXIL_COUNT)
#undef AXIL_COUNT

// sums[r]: of the weights of the trees in which a row of a strip shares the query's leaf, added tree by tree.
template <std::size_t, class Leaf>
AXIL_INLINE void add_lanes(const Leaf* own, const Word* asked, const double* weights,
                           std::size_t trees, double* sums) {
    std::fill(sums, sums + strip, 0.0);
    for (std::size_t t = 0; t < trees; ++t)
        for (std::size_t r = 0; r < strip; ++r) {
            sums[r] += own[t * strip + r] == static_cast<Leaf>(asked[t * abreast]) ? weights[t] : 0.0;
        }
}

using Size = std::size_t;
#define AXIL_ADD(LEAF)                                                                                        \
    AXIL_VERSIONS(add,                                                                                        \
                  (const LEAF* own, const Word* asked, const double* weights, Size trees, double* sums),      \
                  (own, asked, weights, trees, sums))
AXIL_LEAVES(AXIL_ADD)
#undef AXIL_ADD

// The same of one row.
template <class Leaf>
double sum_of(const Leaf* own, const Word* asked, const double* weights, std::size_t trees) {
    double sum = 0;
    for (std::size_t t = 0; t < trees; ++t) sum += own[t * strip] == static_cast<Leaf>(asked[t * abreast]) ? weights[t] : 0.0;
    return sum;
}

// One thread's rows, counts and hits.
template <class Leaf>
class Work {
public:
    explicit Work(const Leaves<Leaf>& leaves)
        : leaves_(leaves), most_(std::clamp<std::size_t>(
                               block_bytes / (std::max<std::size_t>(leaves.trees, 1) * sizeof(Leaf) * strip), 1, 32)),
          own_(most_ * leaves.trees * strip), counts_(most_ * abreast * strip), hits_(most_ * abreast) {}

    std::size_t most_rows() const { return most_ * strip; }
    Block<Leaf> block() const { return {own_.get(), leaves_.trees, strips_}; }
    std::uint32_t* counts() const { return counts_.get(); }
    std::uint8_t* hits() const { return hits_.get(); }
    const Leaf* leaves_of(std::size_t s) const { return own_.get() + s * leaves_.trees * strip; }

    // Take rows begin .. begin + rows - 1.
    void take(std::size_t begin, std::size_t rows) {
        strips_ = (rows + strip - 1) / strip;
        for (std::size_t t = 0; t < leaves_.trees; ++t)
            for (std::size_t s = 0; s < strips_; ++s) {
                Leaf* to = own_.get() + (s * leaves_.trees + t) * strip;
                const std::size_t used = std::min(strip, rows - s * strip);
                std::memcpy(to, leaves_.tree(t) + begin + s * strip, used * sizeof(Leaf));
                std::fill(to + used, to + strip, Leaf{0});
            }
    }

    // The k-th largest count of the i-th query among the first `rows` rows.
    std::uint32_t kth_count(std::size_t i, std::size_t rows, std::size_t k) {
        std::vector<std::uint32_t> found(rows);
        for (std::size_t r = 0; r < rows; ++r) found[r] = counts()[(r / strip * abreast + i) * strip + r % strip];
        std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(k - 1), found.end(),
                         std::greater<std::uint32_t>());
        return found[k - 1];
    }

private:
    Leaves<Leaf> leaves_;
    std::size_t most_, strips_ = 0;
    BufferOf<Leaf> own_;
    BufferOf<std::uint32_t> counts_;
    BufferOf<std::uint8_t> hits_;
};

// The queries (n, trees) in groups, each (trees, abreast); spare queries have some leaf.
template <class Leaf>
std::vector<Word> grouped(const Leaf* queries, std::size_t n, std::size_t trees) {
    std::vector<Word> made((n + abreast - 1) / abreast * abreast * trees, 0u);
    for (std::size_t q = 0; q < n; ++q)
        for (std::size_t t = 0; t < trees; ++t)
            made[(q / abreast * trees + t) * abreast + q % abreast] = word_of(queries[q * trees + t]);
    return made;
}

// Call f(begin, rows, work, thread) for all rows from `first` on, block by block.
template <class Leaf, class F>
void by_block(const Leaves<Leaf>& leaves, std::size_t first, std::size_t rows, const Crew& crew, const F& f) {
    const Chunks chunks(rows, least_chunk, most_chunks);
    std::vector<std::unique_ptr<Work<Leaf>>> works(std::min(crew.n_threads, chunks.count()));
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
        if (!works[thread]) works[thread] = std::make_unique<Work<Leaf>>(leaves);
        Work<Leaf>& work = *works[thread];
        for (std::size_t begin = chunks.begin(i); begin < chunks.end(i); begin += work.most_rows()) {
            const std::size_t some = std::min(work.most_rows(), chunks.end(i) - begin);
            work.take(first + begin, some);
            f(begin, some, work, thread);
        }
    });
}

// The units that a row must have to exceed a size.
inline std::uint32_t need_of(const Plan& plan, bool alike, double least) {
    constexpr double most = std::numeric_limits<std::uint32_t>::max();
    const double units = alike ? std::floor(least) + 1 : std::ceil((least - plan.slack) / plan.unit);
    return static_cast<std::uint32_t>(std::clamp(units, alike ? 1.0 : 0.0, most));
}

}  // namespace matching

template <class Leaf>
void matches(const Leaves<Leaf>& leaves, const Leaf* queries, std::size_t n, const double* weights, std::size_t first,
             std::size_t rows, double* out, const Crew& crew) {
    using namespace matching;
    const Plan plan = plan_of(nullptr, leaves.trees, std::numeric_limits<Leaf>::max());
    for (std::size_t q0 = 0; q0 < n; q0 += most_queries) {
        const std::size_t some = std::min(most_queries, n - q0);
        const std::vector<Word> asked = grouped(queries + q0 * leaves.trees, some, leaves.trees);
        by_block(leaves, first, rows, crew, [&](std::size_t begin, std::size_t own, Work<Leaf>& work, std::size_t) {
            for (std::size_t q = 0; q < some; q += abreast) {
                const Queried group{asked.data() + q * leaves.trees, {}};
                if (!weights) count(plan, work.block(), group, work.counts(), work.hits());
                for (std::size_t i = q; i < std::min(q + abreast, some); ++i)
                    for (std::size_t s = 0; s * strip < own; ++s) {
                        double sums[strip];
                        if (weights)
                            add(work.leaves_of(s), group.leaves + (i - q), weights, leaves.trees, sums);
                        else
                            std::copy_n(work.counts() + (s * abreast + i - q) * strip, strip, sums);
                        for (std::size_t r = 0; r < std::min(strip, own - s * strip); ++r)
                            out[(begin + s * strip + r) * n + q0 + i] = sums[r];
                    }
            }
        });
    }
}

template <class Leaf>
void top_matches(const Leaves<Leaf>& leaves, const Leaf* queries, std::size_t n, const double* weights, std::size_t k,
                 double* values, std::int64_t* rows, const Crew& crew) {
    using namespace matching;
    if (k == 0 || leaves.rows == 0 || leaves.trees == 0) return;
    const Plan plan = plan_of(weights, leaves.trees, std::numeric_limits<Leaf>::max());
    const bool alike = !weights;
    for (std::size_t q0 = 0; q0 < n; q0 += most_queries) {
        const std::size_t some = std::min(most_queries, n - q0);
        const std::vector<Word> asked = grouped(queries + q0 * leaves.trees, some, leaves.trees);
        std::vector<std::unique_ptr<Largest>> found(crew.n_threads);
        const auto look = [&](std::size_t begin, std::size_t own, Work<Leaf>& work, std::size_t thread) {
            if (!found[thread]) found[thread] = std::make_unique<Largest>(k, std::vector<double>(some, 0.0));
            Largest& largest = *found[thread];
            for (std::size_t q = 0; q < some; q += abreast) {
                Queried group{asked.data() + q * leaves.trees, {}};
                const std::size_t used = std::min(abreast, some - q);
                std::fill_n(group.need, abreast, std::numeric_limits<std::uint32_t>::max());
                for (std::size_t i = 0; i < used; ++i) group.need[i] = need_of(plan, alike, largest.least(q + i));
                count(plan, work.block(), group, work.counts(), work.hits());
                for (std::size_t i = 0; i < used && !alike && own >= k; ++i)
                    if (largest.least(q + i) <= 0) {  // so that not all of the first block is added up
                        largest.raise(q + i, plan.unit * work.kth_count(i, own, k) - plan.excess);
                        group.need[i] = need_of(plan, alike, largest.least(q + i));
                    }
                for (std::size_t s = 0; s * strip < own; ++s)
                    for (std::size_t i = 0; i < used; ++i) {
                        if (!work.hits()[s * abreast + i]) continue;
                        const std::uint32_t* counts = work.counts() + (s * abreast + i) * strip;
                        for (std::size_t r = 0; r < std::min(strip, own - s * strip); ++r) {
                            if (counts[r] < group.need[i]) continue;
                            const double size = alike ? counts[r]
                                                      : sum_of(work.leaves_of(s) + r, group.leaves + i, weights,
                                                               leaves.trees);
                            largest.offer(q + i, {size, size, static_cast<std::int64_t>(begin + s * strip + r)});
                        }
                    }
            }
        };
        by_block(leaves, 0, leaves.rows, crew, look);
        std::vector<Largest> all;
        for (const auto& one : found)
            if (one) all.push_back(*one);
        const auto standing = [&](std::size_t s) {
            return ranking::Standing(values + (q0 + s) * k, rows + (q0 + s) * k, k, nullptr);
        };
        ranking::merge(all, some, k, standing, crew);
    }
}

AXIL_INSTANTIATE(matches)
AXIL_INSTANTIATE(top_matches)

}  // namespace axil
