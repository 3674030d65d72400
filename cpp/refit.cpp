// refit_rounds: rounds of fits again: rows follow the trees of the round before, then leaves add up gradients.
//
// Several fits with other weights of the same rows go together. Where the leaf values of several rounds are known, a block
// of rows goes through all of them while its states stay in the nearest caches. Sums are cut by rows, and added up in that
// order.
#include <vector>

#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace refitting {

constexpr std::size_t block_rows = 512;
constexpr std::size_t most_chunks = 32, least_rows = 8192;  // worth handing to a thread

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const Refit& refit;
    const std::vector<std::size_t>&steps, &sums;  // where the table of each move and the sums of each term begin
    std::size_t n_steps, n_sums;                  // of one fit
};

template <class Leaf>
AXIL_INLINE void round(const Job<Leaf>& job, std::size_t number, std::size_t copy, std::size_t begin, std::size_t n,
                       double* out) {
    const Refit& r = job.refit;
    const std::size_t rows = job.leaves.rows;
    double* state = r.state + copy * r.outputs * rows;
    const double* weights = r.weights + copy * rows + begin;
    double p[block_rows], rest[block_rows], total[block_rows], g[block_rows], h[block_rows];
    const auto bound = [&](std::size_t i, std::size_t kind) {
        return static_cast<std::size_t>(r.bounds[2 * i + kind]);
    };
    for (std::size_t i = bound(number, 0); i < bound(number + 1, 0); ++i) {
        const Leaf* AXIL_RESTRICT leaf = job.leaves.tree(static_cast<std::size_t>(r.moves[i].tree)) + begin;
        const double* AXIL_RESTRICT step = r.steps + copy * job.n_steps + job.steps[i];
        double* AXIL_RESTRICT s = state + static_cast<std::size_t>(r.moves[i].output) * rows + begin;
        for (std::size_t j = 0; j < n; ++j) s[j] *= step[leaf[j]];
    }
    if (r.link == Program::share) {
        std::fill(total, total + n, 0.0);
        for (std::size_t k = 0; k < r.outputs; ++k)
            for (std::size_t j = 0; j < n; ++j) total[j] += state[k * rows + begin + j];
    }
    for (std::size_t i = bound(number, 1); i < bound(number + 1, 1); ++i) {
        const std::size_t tree = static_cast<std::size_t>(r.terms[i].tree);
        const std::size_t at = static_cast<std::size_t>(r.terms[i].output) * rows + begin;
        const double* AXIL_RESTRICT s = state + at;
        const double* AXIL_RESTRICT intercept = r.intercepts + at;
        const double* AXIL_RESTRICT slope = r.slopes + at;
        if (r.link == Program::share)
            for (std::size_t j = 0; j < n; ++j) {
                p[j] = s[j] / total[j];
                rest[j] = 1.0 - p[j];
            }
        else
            for (std::size_t j = 0; j < n; ++j) {
                p[j] = 1.0 / (1.0 + s[j]);
                rest[j] = s[j] * p[j];
            }
        for (std::size_t j = 0; j < n; ++j) g[j] = weights[j] * (intercept[j] + slope[j] * p[j]);
        if (r.curvature > 0)
            for (std::size_t j = 0; j < n; ++j) h[j] = weights[j] * (r.curvature * p[j] * rest[j]);
        else
            std::copy_n(weights, n, h);
        if (r.draws) {
            const std::uint8_t* AXIL_RESTRICT drawn = r.draws + tree * rows + begin;
            for (std::size_t j = 0; j < n; ++j) {
                g[j] *= drawn[j];
                h[j] *= drawn[j];
            }
        }
        const Leaf* leaf = job.leaves.tree(tree) + begin;
        double* own = out + 2 * job.sums[i];
        for (std::size_t j = 0; j < n; ++j) {
            double* at_leaf = own + 2 * static_cast<std::size_t>(leaf[j]);
            at_leaf[0] += g[j];
            at_leaf[1] += h[j];
        }
    }
}

template <std::size_t, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t copy, std::size_t begin, std::size_t end, double* out) {
    for (; begin < end; begin += block_rows)
        for (std::size_t i = 0; i < job.refit.rounds; ++i)
            round(job, i, copy, begin, std::min(block_rows, end - begin), out);
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF)                                                                       \
    AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size copy, Size begin, Size end, double* out), \
                  (job, copy, begin, end, out))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace refitting

template <class Leaf>
void refit_rounds(const Leaves<Leaf>& leaves, const Refit& refit, const Crew& crew) {
    using namespace refitting;
    std::vector<Size> steps, sums;
    Size n_steps = 0, n_sums = 0;
    for (Size i = 0; i < refit.n_moves; ++i) {
        steps.push_back(n_steps);
        n_steps += leaves.count(static_cast<Size>(refit.moves[i].tree));
    }
    for (Size i = 0; i < refit.n_terms; ++i) {
        sums.push_back(n_sums);
        n_sums += leaves.count(static_cast<Size>(refit.terms[i].tree));
    }
    const Job<Leaf> job{leaves, refit, steps, sums, n_steps, n_sums};
    const Chunks chunks(leaves.rows, least_rows, most_chunks);
    const Size size = 2 * n_sums;
    const Buffer partials(refit.copies * chunks.count() * std::max<Size>(size, 1));
    parallel(crew, refit.copies * chunks.count(), [&](std::size_t i, std::size_t) {
        double* partial = partials.get() + i * size;
        std::fill(partial, partial + size, 0.0);
        const Size part = i % chunks.count();
        chunk(job, i / chunks.count(), chunks.begin(part), chunks.end(part), partial);
    });
    for (Size copy = 0; copy < refit.copies; ++copy) {
        const double* partial = partials.get() + copy * chunks.count() * size;
        double* out = refit.sums + copy * size;
        std::copy_n(partial, size, out);
        for (Size i = 1; i < chunks.count(); ++i)
            for (Size l = 0; l < size; ++l) out[l] += partial[i * size + l];
    }
}

AXIL_INSTANTIATE(refit_rounds)

}  // namespace axil
