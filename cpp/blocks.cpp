// blocks_of: rows in blocks of blocks, and the k largest of a read-out by branch and bound.
//
// A value is a sum of one entry per tree, so no row of a block exceeds the sum over trees of the largest entry among the
// leaves that occur in the block, nor falls below that of the smallest. Blocks are opened in the order of their bounds until
// the next bound falls below the k-th largest value. Bounds are in single precision with a slack for all roundings, and what
// they let pass is computed as read_out computes it: so neither the order of the rows nor that of the visits can change the
// outcome.
#include "blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "bounds.hpp"
#include "buffer.hpp"
#include "lookups.hpp"
#include "ranking.hpp"

namespace axil {
namespace blocking {

using ranking::Candidate;

constexpr std::size_t joined_columns = 32;  // as many as top_rows reads together: its values are the same to the bit
constexpr std::size_t rows_per_number = 5, least_numbers = 4096;  // a block with more leaves than that bounds nothing
constexpr double rounding = 1.0 / (1 << 24);
constexpr double caution = 1e-9;  // more than the few roundings of a size in double

// One query's entries: in double as they are, in single precision in units of their largest sum, so that nothing underflows.
struct Query {
    const double* exact;  // (leaves,)
    const float* entries;
    double constant, unit;
    float start, slack;
    bool sound;  // its numbers are neither infinite nor nearly zero

    double size(float sum) const { return (static_cast<double>(sum) + slack) * unit * (1 + caution); }
};

// The k first candidates that were offered.
class Places {
public:
    explicit Places(std::size_t k) : k_(k) {}

    // Sizes below this are of no account.
    double least() const { return held_.size() < k_ ? -1 : held_.front().size; }

    void offer(const Candidate& candidate) {
        if (!(candidate.size >= 0)) return;  // not a number
        if (held_.size() == k_) {
            if (!ranking::before(candidate, held_.front())) return;
            std::pop_heap(held_.begin(), held_.end(), ranking::before);
            held_.pop_back();
        }
        held_.push_back(candidate);
        std::push_heap(held_.begin(), held_.end(), ranking::before);
    }

    const std::vector<Candidate>& held() const { return held_; }

private:
    std::size_t k_;
    std::vector<Candidate> held_;  // a heap, the last one in front
};

// Largest |weight * scale| by row, in the order of the blocks, and by block of each level; none: all are one.
struct Factors {
    bool finite = true;
    std::vector<float> rows;
    std::vector<std::vector<float>> blocks;

    double of_row(std::size_t i) const { return rows.empty() ? 1.0 : rows[i]; }
    double of(std::size_t level, std::size_t block) const { return rows.empty() ? 1.0 : blocks[level][block]; }
};

template <class Leaf>
class BlocksOf : public Blocks {
public:
    BlocksOf(const Leaves<Leaf>& leaves, std::unique_ptr<std::uint32_t[]> order)
        : starts_(leaves.starts, leaves.starts + leaves.trees + 1), trees_(leaves.trees), rows_(leaves.rows),
          order_(std::move(order)), cells_(count(block_rows) * trees_ * block_rows),
          lookups_(lookups_of(leaves, leaves.rows, joined_columns)) {
        for (std::size_t t = 0; t < trees_; ++t) tree_of_.resize(start(t + 1), static_cast<std::uint32_t>(t));
    }

    bool fill(const Leaves<Leaf>& leaves, const Crew& crew) {
        parallel(crew, trees_, [&](std::size_t t, std::size_t) {
            const Leaf* tree = leaves.tree(t);
            for (std::size_t i = 0; i < count(block_rows) * block_rows; ++i)
                cells_.get()[(i / block_rows * trees_ + t) * block_rows + i % block_rows] =
                    tree[order_[std::min(i, rows_ - 1)]];
        });
        std::size_t most = std::max(trees_ * rows_ / rows_per_number, least_numbers), size = block_rows * branches;
        const auto of_rows = [&](std::size_t block, Collector& collector) {
            for (std::size_t i = 0; i < branches && block * branches + i < count(block_rows); ++i) {
                const Leaf* cell = cells_.get() + (block * branches + i) * trees_ * block_rows;
                for (std::size_t t = 0; t < trees_; ++t)
                    for (std::size_t r = 0; r < block_rows; ++r) collector.add(t, start(t) + *cell++, i);
            }
        };
        levels_.emplace_back();
        if (!make_level(count(size), starts_, most, levels_.back(), crew, of_rows)) return false;
        for (size *= branches; count(size) >= least_blocks; size *= branches) {
            most -= levels_.back().data.size();
            levels_.emplace_back();
            const Level& below = levels_[levels_.size() - 2];
            const auto of_blocks = [&](std::size_t block, Collector& collector) {
                for (std::size_t i = 0; i < branches && block * branches + i < below.blocks(); ++i)
                    for (const std::uint32_t* at = below.of(block * branches + i); *at;) {
                        const std::uint32_t* last = at + 2 + at[0] * at[1];
                        for (at += 2; at < last; ++at) collector.add(tree_of_[entry_of(*at)], entry_of(*at), i);
                    }
            };
            if (!make_level(count(size), starts_, most, levels_.back(), crew, of_blocks)) return false;
        }
        return true;
    }

    std::size_t rows() const override { return rows_; }
    std::size_t total() const override { return static_cast<std::size_t>(starts_.back()); }

    std::size_t bytes() const override {
        std::size_t sum = sizeof(std::uint32_t) * rows_ + sizeof(Leaf) * count(block_rows) * trees_ * block_rows;
        for (const auto& level : levels_)
            sum += sizeof(std::uint32_t) * level.data.size() + sizeof(std::size_t) * level.starts.size();
        return sum;
    }

    void top(const double* table, std::size_t columns, const double* constant, const double* weights,
             const double* scale, std::size_t k, std::size_t most, double* values, std::int64_t* rows,
             std::uint8_t* done, const Crew& crew) const override {
        if (k == 0 || columns == 0) return std::fill(done, done + columns, std::uint8_t(1));
        const Factors factors = factors_of(weights, scale, crew);
        const std::size_t group = std::clamp<std::size_t>(columns / (4 * crew.n_threads), 1, lanes);
        const std::size_t groups = (columns + group - 1) / group;
        std::vector<std::unique_ptr<Room>> rooms(std::min(crew.n_threads, groups));
        parallel(crew, groups, [&](std::size_t i, std::size_t thread) {
            if (!rooms[thread]) rooms[thread] = std::make_unique<Room>(total(), levels_.back().blocks());
            const std::size_t first = i * group, n = std::min(group, columns - first);
            auto& room = *rooms[thread];
            Query queries[lanes];
            take(table, columns, constant, first, n, room, queries);
            bound_level(levels_.back(), room.together.get(), room.constants, room.bounds.data());
            for (std::size_t c = 0; c < n; ++c) {
                Places places(k);
                const std::size_t s = first + c;
                done[s] = search(queries[c], room, c, factors, weights, scale, most, places);
                if (done[s]) ranking::Standing(values + s * k, rows + s * k, k, scale).merge(places.held());
            }
        });
    }

private:
    struct Open {
        double bound;
        std::uint32_t level, block;
        bool operator<(const Open& other) const { return bound < other.bound; }
    };

    // One thread's.
    struct Room {
        Room(std::size_t total, std::size_t blocks)
            : exact(total * lanes), entries(total * lanes), together(total * lanes), bounds(blocks * lanes) {}
        BufferOf<double> exact;             // (lanes, leaves)
        BufferOf<float> entries, together;  // (lanes, leaves), (leaves, lanes)
        std::vector<float> bounds;          // (blocks of the last level, lanes)
        float constants[lanes];
        std::vector<Open> open;
    };

    std::size_t count(std::size_t size) const { return (rows_ + size - 1) / size; }
    std::size_t blocks(std::size_t level) const { return level == 0 ? count(block_rows) : levels_[level - 1].blocks(); }
    std::size_t start(std::size_t t) const { return static_cast<std::size_t>(starts_[t]); }

    Factors factors_of(const double* weights, const double* scale, const Crew& crew) const {
        Factors made;
        if (!weights && !scale) return made;
        made.rows.resize(rows_);
        made.blocks.resize(levels_.size() + 1);
        made.blocks[0].resize(blocks(0));
        const Chunks chunks(blocks(0), 1024, 256);
        parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
            for (std::size_t block = chunks.begin(i); block < chunks.end(i); ++block) {
                float largest = 0;
                for (std::size_t p = block * block_rows; p < std::min(rows_, (block + 1) * block_rows); ++p) {
                    const std::size_t j = order_[p];
                    const double factor = std::fabs((weights ? weights[j] : 1.0) * (scale ? scale[j] : 1.0));
                    made.rows[p] = std::nextafter(static_cast<float>(factor), std::numeric_limits<float>::infinity());
                    if (made.rows[p] > largest) largest = made.rows[p];
                }
                made.blocks[0][block] = largest;
            }
        });
        for (std::size_t l = 1; l <= levels_.size(); ++l) {
            made.blocks[l].resize(blocks(l), 0);
            for (std::size_t b = 0; b < made.blocks[l - 1].size(); ++b)
                made.blocks[l][b / branches] = std::max(made.blocks[l][b / branches], made.blocks[l - 1][b]);
        }
        for (const float factor : made.rows) made.finite = made.finite && std::isfinite(factor);
        return made;
    }

    // The entries of n queries from a table (leaves, columns).
    void take(const double* table, std::size_t columns, const double* constant, std::size_t first, std::size_t n,
              Room& room, Query* queries) const {
        const std::size_t size = total();
        std::fill(room.together.get(), room.together.get() + size * lanes, 0.0f);
        std::fill(room.constants, room.constants + lanes, 0.0f);
        for (std::size_t c = 0; c < n; ++c) {
            double* exact = room.exact.get() + c * size;
            float* entries = room.entries.get() + c * size;
            for (std::size_t l = 0; l < size; ++l) exact[l] = table[l * columns + first + c];
            double bound = std::fabs(constant[first + c]), all = bound;  // all: finite if every entry is
            for (std::size_t t = 0; t < trees_; ++t) {
                double largest = 0;
                for (std::size_t l = start(t); l < start(t + 1); ++l) {
                    largest = std::max(largest, std::fabs(exact[l]));
                    all += std::fabs(exact[l]);
                }
                bound += largest;
            }
            int exponent = 0;
            if (std::isfinite(all)) std::frexp(bound, &exponent);
            const bool sound = std::isfinite(all) && std::abs(exponent) < 1000;
            const double unit = sound ? std::ldexp(1.0, exponent) : 1.0;
            for (std::size_t l = 0; l < size; ++l)
                room.together.get()[l * lanes + c] = entries[l] = static_cast<float>(exact[l] / unit);
            // Roundings of an entry, all additions, a sum in double.
            const double roundings = 1.01 * static_cast<double>(trees_ + 8);
            queries[c] = {exact,
                          entries,
                          constant[first + c],
                          unit,
                          static_cast<float>(constant[first + c] / unit),
                          static_cast<float>(bound / unit * roundings * rounding),
                          sound};
            room.constants[c] = queries[c].start;
        }
    }

    // Whether all was found within `most` look-ups.
    bool search(const Query& query, Room& room, std::size_t lane, const Factors& factors, const double* weights,
                const double* scale, std::size_t most, Places& places) const {
        if (!query.sound || !factors.finite) return false;
        auto& open = room.open;
        open.clear();
        const auto last = static_cast<std::uint32_t>(levels_.size());
        for (std::size_t b = 0; b < levels_.back().blocks(); ++b)
            open.push_back(
                {query.size(room.bounds[b * lanes + lane]) * factors.of(last, b), last, static_cast<std::uint32_t>(b)});
        std::make_heap(open.begin(), open.end());
        std::size_t work = 0;
        while (!open.empty() && !(open.front().bound < places.least())) {
            const Open next = open.front();
            std::pop_heap(open.begin(), open.end());
            open.pop_back();
            if (work > most) return false;
            if (next.level == 0) {
                work += trees_ * block_rows;
                look(query, next.block, factors, weights, scale, places);
                continue;
            }
            const Level& own = levels_[next.level - 1];
            const std::size_t first = next.block * branches, n = std::min(branches, blocks(next.level - 1) - first);
            float bounds[branches];
            work += own.length(next.block);
            bound_parts(own.of(next.block), query.entries, query.start, bounds);
            for (std::size_t i = 0; i < n; ++i) {
                const double size = query.size(bounds[i]) * factors.of(next.level - 1, first + i);
                if (size < places.least()) continue;
                open.push_back({size, next.level - 1, static_cast<std::uint32_t>(first + i)});
                std::push_heap(open.begin(), open.end());
            }
        }
        return true;
    }

    // Offer the rows of a block.
    void look(const Query& query, std::size_t block, const Factors& factors, const double* weights, const double* scale,
              Places& places) const {
        const Leaf* cells = cells_.get() + block * trees_ * block_rows;
        float sums[block_rows];
        read(cells, starts_.data(), trees_, query.entries, query.start, sums);
        const std::size_t first = block * block_rows;
        for (std::size_t r = 0; r < std::min(block_rows, rows_ - first); ++r) {
            if (query.size(std::fabs(sums[r])) * factors.of_row(first + r) < places.least()) continue;
            const std::size_t j = order_[first + r];
            const double sum = exact_sum(lookups_, query.constant, [&](std::size_t t) {
                return query.exact[start(t) + cells[t * block_rows + r]];
            });
            const double value = weights ? weights[j] * sum : sum;
            places.offer({std::fabs((scale ? scale[j] : 1.0) * value), value, static_cast<std::int64_t>(j)});
        }
    }

    std::vector<std::int64_t> starts_;
    std::size_t trees_, rows_;
    std::unique_ptr<std::uint32_t[]> order_;  // (rows,)
    BufferOf<Leaf> cells_;                    // (blocks, trees, block_rows); the last row again where there are no more
    std::vector<Lookup> lookups_;
    std::vector<std::uint32_t> tree_of_;  // (entries,)
    std::vector<Level> levels_;           // of blocks of `branches` blocks of rows, then of as many of these, and so on
};

}  // namespace blocking

template <class Leaf>
std::unique_ptr<Blocks> blocks_of(const Leaves<Leaf>& leaves, const float* places, std::size_t dimensions,
                                  const Crew& crew) {
    if (leaves.total() > blocking::most_entries) return nullptr;
    auto made = std::make_unique<blocking::BlocksOf<Leaf>>(leaves,
                                                           blocking::order_of(places, leaves.rows, dimensions, crew));
    if (!made->fill(leaves, crew)) return nullptr;
    return made;
}

AXIL_INSTANTIATE(blocks_of)

}  // namespace axil
