// replay: walk through the trees with given leaf values and sum the residuals that each leaf saw.
//
// Given the leaf values the rows do not depend on each other: a block of rows goes through all the trees while its
// scores stay in the first-level cache.
#include <array>
#include <vector>

#include "instruction_sets.hpp"
#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace replaying {

constexpr std::size_t block_rows = 512;
constexpr std::size_t most_chunks = 128;
constexpr std::size_t least_rows = 4096, least_visits = 100000;  // of a chunk: worth handing to a thread

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const double *values, *targets, *weights;
    bool single, single_score;
    double* score;
};

// Residuals of a block's rows that fall into the same few leaves would wait for each other: they take turns.
constexpr std::size_t turns = 4, few_leaves = 64;

template <class Leaf>
AXIL_INLINE void add(const Leaf* leaf, const double* residuals, std::size_t n, std::size_t n_leaves, double* sums,
                     double* counts) {
    std::size_t j = 0;
    if (n_leaves <= few_leaves && n >= 4 * few_leaves) {
        std::array<double, turns> own[few_leaves];
        std::array<std::uint32_t, turns> seen[few_leaves];
        for (std::size_t l = 0; l < n_leaves; ++l) own[l] = {}, seen[l] = {};
        for (; j + turns <= n; j += turns) {
            AXIL_UNROLL for (std::size_t r = 0; r < turns; ++r) {
                own[leaf[j + r]][r] += residuals[j + r];
                ++seen[leaf[j + r]][r];
            }
        }
        for (std::size_t l = 0; l < n_leaves; ++l) {
            sums[l] += (own[l][0] + own[l][1]) + (own[l][2] + own[l][3]);
            counts[l] += (seen[l][0] + seen[l][1]) + (seen[l][2] + seen[l][3]);
        }
    }
    for (; j < n; ++j) {
        sums[leaf[j]] += residuals[j];
        counts[leaf[j]] += 1.0;
    }
}

template <class Leaf>
AXIL_INLINE void block(const Job<Leaf>& job, std::size_t begin, std::size_t n, double* sums, double* counts) {
    double residuals[block_rows];
    double* score = job.score + begin;
    const double* targets = job.targets + begin;
    for (std::size_t t = 0; t < job.leaves.trees; ++t) {
        const Leaf* leaf = job.leaves.tree(t) + begin;
        const std::size_t start = job.leaves.start(t);
        for (std::size_t j = 0; j < n; ++j) residuals[j] = targets[j] - score[j];
        if (job.single)
            for (std::size_t j = 0; j < n; ++j) residuals[j] = static_cast<float>(residuals[j]);
        if (job.weights)
            for (std::size_t j = 0; j < n; ++j) residuals[j] *= job.weights[begin + j];
        if (job.single && job.weights)
            for (std::size_t j = 0; j < n; ++j) residuals[j] = static_cast<float>(residuals[j]);
        add(leaf, residuals, n, job.leaves.count(t), sums + start, counts + start);
        for (std::size_t j = 0; j < n; ++j) score[j] += job.values[start + leaf[j]];
        if (job.single_score)
            for (std::size_t j = 0; j < n; ++j) score[j] = static_cast<float>(score[j]);
    }
}

template <std::size_t, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end, double* sums) {
    double* counts = sums + job.leaves.total();
    for (; begin < end; begin += block_rows) block(job, begin, std::min(block_rows, end - begin), sums, counts);
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF) \
    AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size from, Size to, double* sums), (job, from, to, sums))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace replaying

template <class Leaf>
void replay(const Leaves<Leaf>& leaves, const double* values, const double* targets, const double* weights, bool single,
            bool single_score, double* score, double* sums, double* counts, const Crew& crew) {
    using namespace replaying;
    const Job<Leaf> job{leaves, values, targets, weights, single, single_score, score};
    const std::size_t total = leaves.total(), size = 2 * total;  // sums and counts
    // All partial sums together take no more than 64 bytes a row.
    const std::size_t least = std::max({least_rows, least_visits / std::max<std::size_t>(leaves.trees, 1), total / 4});
    const Chunks chunks(leaves.rows, least, most_chunks);
    const Buffer partials(chunks.count() * size);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        double* partial = partials.get() + i * size;
        std::fill(partial, partial + size, 0.0);
        chunk(job, chunks.begin(i), chunks.end(i), partial);
    });
    add_up(partials.get(), chunks.count(), size, crew);
    std::copy_n(partials.get(), total, sums);
    std::copy_n(partials.get() + total, total, counts);
}

AXIL_INSTANTIATE(replay)

}  // namespace axil
