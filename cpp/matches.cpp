// matches: in which trees rows share their leaf with queries, as the sum of the weights of those trees.
// top_matches: the k largest of these sums for every query, without writing the others down.
//
// Leaf numbers are compared a whole vector register at a time, for several queries while the rows' leaves are in the nearest
// cache: some rows and some trees at a time, whose leaves are read from memory in long runs. What is counted are whole units of
// the trees' weights, in lanes as narrow as the leaf numbers; they are moved to wider sums before a lane can overflow. Units are
// rounded and bound the sum from above: few rows reach the k-th largest so far, and only these are added up in double, tree by
// tree.
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

constexpr std::size_t abreast = 8;               // queries whose lanes stay in registers
constexpr std::size_t strip = 128;               // rows that lie together, tree by tree
constexpr std::size_t block_bytes = 256 * 1024;  // of leaf numbers that stay in the second-level cache
constexpr std::size_t least_chunk = 2048, most_chunks = 4096;
constexpr std::size_t most_queries = 512;         // between two moments at which an interrupt takes effect
constexpr std::size_t most_counted = 128;         // queries whose counts are kept from some trees to the next
constexpr std::size_t most_entries = 256;         // of a segment
constexpr std::size_t runs_ahead = 4, line = 64;  // leaves that are asked of the memory before they are copied
constexpr std::size_t looked_at = 64;             // entries after which bounds are looked at
constexpr std::size_t units_per_tree = 8, least_units = 250;  // on average, and of all trees together
constexpr std::uint32_t most_units = 255;                     // of an entry

// A tree and the units that it counts for. A heavy tree has several entries.
struct Entry {
    std::uint32_t tree, units;
    std::uint32_t left;  // units of all entries after it
};

// Entries whose units fit into a lane together, and whose leaves lie together.
struct Segment {
    std::size_t first, last;
    std::size_t size() const { return last - first; }
};

struct Plan {
    std::vector<Entry> entries;
    std::vector<Segment> segments;
    double unit = 1, slack = 0, excess = 0;  // a sum is within unit * units - excess and unit * units + slack

    bool is_whole() const { return segments.size() == 1; }  // all trees are counted at once
    // Queries that are counted at once.
    std::size_t together() const { return is_whole() ? most_queries : most_counted; }
    std::size_t longest() const {
        std::size_t found = 1;
        for (const Segment& one : segments) found = std::max(found, one.size());
        return found;
    }
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
    std::size_t first = 0;
    do {  // one even where no tree has a unit
        const std::size_t most = std::min(plan.entries.size(), first + most_entries);
        std::size_t last = first;
        for (std::uint64_t units = 0; last < most && units + plan.entries[last].units <= lane;)
            units += plan.entries[last++].units;
        plan.segments.push_back({first, last});
        first = last;
    } while (first < plan.entries.size());
    return plan;
}

// Some rows in the trees of a segment, strip by strip, (entries, strip) each; spare rows have some leaf.
template <class Leaf>
struct Block {
    const Leaf* leaves;
    std::size_t segment, strips;
};

// A leaf number in every lane of a word, which processors copy to all words of a register while they load it.
using Word = std::uint32_t;

template <class Leaf>
constexpr Word word_of(Leaf leaf) {
    return sizeof(Leaf) == 1 ? leaf * 0x01010101u : sizeof(Leaf) == 2 ? leaf * 0x00010001u : leaf;
}

// Some queries beside each other, one for each bit of a byte.
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

// Add the units of a segment to counts (abreast, strip) of as many rows as the registers hold. Bit q of the result: whether any
// of them may still have the units that query q needs. Counts of rows that cannot have them may be too low.
template <std::size_t W, class Leaf>
AXIL_INLINE std::uint8_t count_rows(const Plan& plan, std::size_t s, const Leaf* own, const Queried& group,
                                    std::uint32_t* counts) {
    using R = Registers<W, Leaf>;
    using V = typename R::type;
    const Segment& segment = plan.segments[s];
    V found[abreast][R::count] = {};
    for (std::size_t first = segment.first; first < segment.last;) {
        const std::size_t last = std::min(first + looked_at, segment.last);
        for (; first < last; ++first, own += strip) {
            const Entry& entry = plan.entries[first];
            const Leaf units = static_cast<Leaf>(entry.units);
            const Word* asked = group.leaves + entry.tree * abreast;
            V leaf[R::count];
            AXIL_UNROLL
            for (std::size_t i = 0; i < R::count; ++i) leaf[i] = load<V>(own + i * R::lanes);
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
        if (!open) return 0;
    }
    alignas(64) Leaf moved[abreast][R::rows];
    AXIL_UNROLL
    for (std::size_t q = 0; q < abreast; ++q) {
        AXIL_UNROLL
        for (std::size_t i = 0; i < R::count; ++i) store(moved[q] + i * R::lanes, found[q][i]);
    }
    const std::uint32_t left = segment.size() ? plan.entries[segment.last - 1].left : 0;
    unsigned open = 0;
    for (std::size_t q = 0; q < abreast; ++q) {
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < R::rows; ++i) most = std::max(most, counts[q * strip + i] += moved[q][i]);
        open |= static_cast<unsigned>(most + left >= group.need[q]) << q;
    }
    return static_cast<std::uint8_t>(open);
}

// Add to counts (strips, abreast, strip); open (strips): by bits, to which queries a strip is still of account.
template <std::size_t W, class Leaf>
AXIL_INLINE void count_lanes(const Plan& plan, const Block<Leaf>& block, const Queried& group, std::uint32_t* counts,
                             std::uint8_t* open) {
    const std::size_t size = plan.segments[block.segment].size() * strip;
    for (std::size_t s = 0; s < block.strips; ++s, counts += abreast * strip) {
        if (!open[s]) continue;
        if (block.segment == 0) std::fill_n(counts, abreast * strip, 0u);
        std::uint8_t any = 0;
        for (std::size_t r = 0; r < strip; r += Registers<W, Leaf>::rows)
            any |= count_rows<W>(plan, block.segment, block.leaves + s * size + r, group, counts + r);
        open[s] = any;
    }
}

#define AXIL_COUNT(LEAF)                                                                                               \
    AXIL_VERSIONS(                                                                                                     \
        count,                                                                                                         \
        (const Plan& plan, const Block<LEAF>& block, const Queried& group, std::uint32_t* counts, std::uint8_t* open), \
        (plan, block, group, counts, open))
AXIL_LEAVES(AXIL_COUNT)
#undef AXIL_COUNT

// sums[r]: of the weights of the trees in which rows share the query's leaf, for `rows` rows from `begin` on, tree by tree.
template <std::size_t, class Leaf>
AXIL_INLINE void add_lanes(const Leaves<Leaf>& leaves, std::size_t begin, std::size_t rows, const Word* asked,
                           const double* weights, double* sums) {
    std::fill(sums, sums + rows, 0.0);
    for (std::size_t t = 0; t < leaves.trees; ++t) {
        const Leaf* own = leaves.tree(t) + begin;
        const Leaf leaf = static_cast<Leaf>(asked[t * abreast]);
        for (std::size_t r = 0; r < rows; ++r) sums[r] += own[r] == leaf ? weights[t] : 0.0;
    }
}

using Size = std::size_t;
#define AXIL_ADD(LEAF)                                                                                               \
    AXIL_VERSIONS(                                                                                                   \
        add,                                                                                                         \
        (const Leaves<LEAF>& leaves, Size begin, Size rows, const Word* asked, const double* weights, double* sums), \
        (leaves, begin, rows, asked, weights, sums))
AXIL_LEAVES(AXIL_ADD)
#undef AXIL_ADD

// One thread's leaves and counts, for this many groups of queries at a time.
template <class Leaf>
class Work {
public:
    Work(const Leaves<Leaf>& leaves, const Plan& plan, std::size_t groups)
        : leaves_(leaves), plan_(plan),
          most_(std::clamp<std::size_t>(block_bytes / (plan.longest() * sizeof(Leaf) * strip), 1, 32)),
          own_(most_ * plan.longest() * strip), counts_((kept(groups) + 1) * most_ * abreast * strip),
          open_((kept(groups) + 1) * most_) {}

    std::size_t most_rows() const { return most_ * strip; }
    std::uint32_t* counts(std::size_t g) const { return counts_.get() + kept(g) * most_ * abreast * strip; }
    const std::uint8_t* open(std::size_t g) const { return open_.get() + kept(g) * most_; }

    // Count all segments in rows begin .. begin + rows - 1 for all groups; then call f(g) for each, while its counts are there.
    template <class F>
    void count_all(std::size_t begin, std::size_t rows, const std::vector<Queried>& groups, const F& f) {
        strips_ = (rows + strip - 1) / strip;
        for (std::size_t s = 0; s < plan_.segments.size(); ++s) {
            take(plan_.segments[s], begin, rows);
            for (std::size_t g = 0; g < groups.size(); ++g) {
                std::uint8_t* open = open_.get() + kept(g) * most_;
                if (s == 0) std::fill_n(open, strips_, std::uint8_t{255});
                count(plan_, Block<Leaf>{own_.get(), s, strips_}, groups[g], counts(g), open);
                if (s + 1 == plan_.segments.size()) f(g);
            }
        }
    }

    // The k-th largest count of the i-th query of a group among the first `rows` rows.
    std::uint32_t kth_count(std::size_t g, std::size_t i, std::size_t rows, std::size_t k) const {
        std::vector<std::uint32_t> found(rows);
        for (std::size_t r = 0; r < rows; ++r) found[r] = counts(g)[(r / strip * abreast + i) * strip + r % strip];
        std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(k - 1), found.end(),
                         std::greater<std::uint32_t>());
        return found[k - 1];
    }

private:
    std::size_t kept(std::size_t g) const { return plan_.is_whole() ? 0 : g; }

    const Leaf* run_of(std::size_t entry, std::size_t begin) const {
        return leaves_.tree(plan_.entries[entry].tree) + begin;
    }

    // Whole strips have a size that is known here: a copy of any size takes longer than the leaves do to come.
    void take(const Segment& segment, std::size_t begin, std::size_t rows) {
        const std::size_t whole = rows / strip, used = rows % strip;
        for (std::size_t e = 0; e < segment.size(); ++e) {
            const Leaf* from = run_of(segment.first + e, begin);
            Leaf* to = own_.get() + e * strip;
            if (e + runs_ahead < segment.size()) {
                const Leaf* next = run_of(segment.first + e + runs_ahead, begin);
                for (std::size_t r = 0; r < rows; r += line / sizeof(Leaf)) AXIL_PREFETCH_READ(next + r);
            }
            for (std::size_t s = 0; s < whole; ++s, from += strip, to += segment.size() * strip)
                std::memcpy(to, from, strip * sizeof(Leaf));
            if (!used) continue;
            std::copy_n(from, used, to);
            std::fill(to + used, to + strip, Leaf{0});
        }
    }

    Leaves<Leaf> leaves_;
    const Plan& plan_;
    std::size_t most_, strips_ = 0;
    BufferOf<Leaf> own_;
    BufferOf<std::uint32_t> counts_;
    BufferOf<std::uint8_t> open_;
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

// The groups of n queries in what `grouped` made of them; none needs a unit.
inline std::vector<Queried> groups_of(const std::vector<Word>& asked, std::size_t n, std::size_t trees) {
    std::vector<Queried> made;
    for (std::size_t q = 0; q < n; q += abreast) made.push_back({asked.data() + q * trees, {}});
    return made;
}

// Call f(begin, own, work, thread) for this many rows, block by block.
template <class Leaf, class F>
void by_block(const Leaves<Leaf>& leaves, const Plan& plan, std::size_t groups, std::size_t rows, const Crew& crew,
              const F& f) {
    const Chunks chunks(rows, least_chunk, most_chunks);
    std::vector<std::unique_ptr<Work<Leaf>>> works(std::min(crew.n_threads, chunks.count()));
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
        if (!works[thread]) works[thread] = std::make_unique<Work<Leaf>>(leaves, plan, groups);
        Work<Leaf>& work = *works[thread];
        for (std::size_t begin = chunks.begin(i); begin < chunks.end(i); begin += work.most_rows())
            f(begin, std::min(work.most_rows(), chunks.end(i) - begin), work, thread);
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
    for (std::size_t q0 = 0; q0 < n; q0 += plan.together()) {
        const std::size_t some = std::min(plan.together(), n - q0);
        const std::vector<Word> asked = grouped(queries + q0 * leaves.trees, some, leaves.trees);
        const std::vector<Queried> groups = groups_of(asked, some, leaves.trees);
        by_block(leaves, plan, groups.size(), rows, crew,
                 [&](std::size_t begin, std::size_t own, Work<Leaf>& work, std::size_t) {
                     const auto write = [&](std::size_t g, const auto& sums_of) {
                         for (std::size_t i = 0; i < std::min(abreast, some - g * abreast); ++i)
                             for (std::size_t s = 0; s * strip < own; ++s) {
                                 const std::size_t used = std::min(strip, own - s * strip);
                                 double sums[strip];
                                 sums_of(i, s, used, sums);
                                 for (std::size_t r = 0; r < used; ++r)
                                     out[(begin + s * strip + r) * n + q0 + g * abreast + i] = sums[r];
                             }
                     };
                     if (!weights)
                         work.count_all(first + begin, own, groups, [&](std::size_t g) {
                             write(g, [&](std::size_t i, std::size_t s, std::size_t used, double* sums) {
                                 std::copy_n(work.counts(g) + (s * abreast + i) * strip, used, sums);
                             });
                         });
                     else
                         for (std::size_t g = 0; g < groups.size(); ++g)
                             write(g, [&](std::size_t i, std::size_t s, std::size_t used, double* sums) {
                                 add(leaves, first + begin + s * strip, used, groups[g].leaves + i, weights, sums);
                             });
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
    for (std::size_t q0 = 0; q0 < n; q0 += plan.together()) {
        const std::size_t some = std::min(plan.together(), n - q0);
        const std::vector<Word> asked = grouped(queries + q0 * leaves.trees, some, leaves.trees);
        std::vector<std::unique_ptr<Largest>> found(crew.n_threads);
        const auto look = [&](std::size_t begin, std::size_t own, Work<Leaf>& work, std::size_t thread) {
            if (!found[thread]) found[thread] = std::make_unique<Largest>(k, std::vector<double>(some, 0.0));
            Largest& largest = *found[thread];
            std::vector<Queried> groups = groups_of(asked, some, leaves.trees);
            for (std::size_t q = 0; q < groups.size() * abreast; ++q)
                groups[q / abreast].need[q % abreast] = q < some ? need_of(plan, alike, largest.least(q))
                                                                 : std::numeric_limits<std::uint32_t>::max();
            work.count_all(begin, own, groups, [&](std::size_t g) {
                Queried& group = groups[g];
                const std::size_t q = g * abreast, used = std::min(abreast, some - q);
                for (std::size_t i = 0; i < used && !alike && own >= k; ++i)
                    if (largest.least(q + i) <= 0) {  // so that not all of the first block is added up
                        largest.raise(q + i, plan.unit * work.kth_count(g, i, own, k) - plan.excess);
                        group.need[i] = need_of(plan, alike, largest.least(q + i));
                    }
                for (std::size_t s = 0; s * strip < own; ++s) {
                    for (std::size_t i = 0; i < used; ++i) {
                        if (!(work.open(g)[s] >> i & 1)) continue;
                        const std::uint32_t* counts = work.counts(g) + (s * abreast + i) * strip;
                        for (std::size_t r = 0; r < std::min(strip, own - s * strip); ++r) {
                            if (counts[r] < group.need[i]) continue;
                            const std::size_t row = begin + s * strip + r;
                            double size = counts[r];
                            if (!alike) add(leaves, row, 1, group.leaves + i, weights, &size);
                            largest.offer(q + i, {size, size, static_cast<std::int64_t>(row)});
                        }
                    }
                }
            });
        };
        by_block(leaves, plan, (some + abreast - 1) / abreast, leaves.rows, crew, look);
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
