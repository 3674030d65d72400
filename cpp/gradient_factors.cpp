// gradient_factors: walk rows through the rounds of a fit and note what each row's own gradient puts into each tree;
// gradient_sums: the same, of which only the sums over leaves are kept; factor_sums: add these numbers up by leaf and
// group of rows.
//
// Given the leaf values the rows do not depend on each other: a block of rows goes through all rounds while its states
// and gradients stay in the nearest caches.
#include <cmath>
#include <vector>

#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace gradients {

constexpr std::size_t block_rows = 512;
constexpr std::size_t most_chunks = 4096, most_summed = 128, least_work = 100000;  // visits worth handing to a thread

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const Program& program;
    const std::vector<std::size_t>&scales, &steps;  // where the table of each term and of each move begins
    const std::vector<bool>& fresh;                 // terms that are the first of their place
    const double *intercepts, *slopes;              // (outputs, rows)
    double* state;                                  // (outputs, rows)
    std::size_t first, rows;
    double* out;   // (places, rows)
    double* sums;  // (the leaves of all terms, 2): of what rows put there, and of its absolute values; null: write out
};

// The gradients of n rows from `begin` on for one output.
template <class Leaf>
AXIL_INLINE void gradient(const Job<Leaf>& job, std::size_t output, std::size_t begin, std::size_t n,
                          const double* AXIL_RESTRICT total, double* AXIL_RESTRICT g) {
    const std::size_t at = output * job.rows + begin;
    const double* AXIL_RESTRICT s = job.state + at;
    const double* AXIL_RESTRICT intercept = job.intercepts + at;
    const double* AXIL_RESTRICT slope = job.slopes + at;
    switch (job.program.link) {
        case Program::share:
            for (std::size_t j = 0; j < n; ++j) g[j] = intercept[j] + slope[j] * (s[j] / total[j]);
            break;
        case Program::inverse:
            for (std::size_t j = 0; j < n; ++j) g[j] = intercept[j] + slope[j] * (1.0 / (1.0 + s[j]));
            break;
        default:
            for (std::size_t j = 0; j < n; ++j) g[j] = intercept[j] + slope[j] * s[j];
    }
}

template <class Leaf>
AXIL_INLINE void term(const Job<Leaf>& job, std::size_t number, std::size_t begin, std::size_t n,
                      const double* AXIL_RESTRICT g, double* AXIL_RESTRICT put) {
    const Term& one = job.program.terms[number];
    const std::size_t tree = static_cast<std::size_t>(one.tree);
    const Leaf* AXIL_RESTRICT leaf = job.leaves.tree(tree) + job.first + begin;
    const double* AXIL_RESTRICT scale = job.program.scales + job.scales[number];
    double* out = job.sums ? nullptr : job.out + static_cast<std::size_t>(one.place) * job.rows + begin;
    const bool fresh = !job.sums && job.fresh[number];
    double* AXIL_RESTRICT to = fresh ? out : put;
    for (std::size_t j = 0; j < n; ++j) to[j] = scale[leaf[j]] * g[j];
    if (job.program.draws) {
        const std::uint8_t* AXIL_RESTRICT drawn = job.program.draws + tree * job.leaves.rows + job.first + begin;
        for (std::size_t j = 0; j < n; ++j) to[j] *= drawn[j];
    }
    if (job.sums) {
        double* own = job.sums + 2 * job.scales[number];
        for (std::size_t j = 0; j < n; ++j) {
            double* at_leaf = own + 2 * static_cast<std::size_t>(leaf[j]);
            at_leaf[0] += put[j];
            at_leaf[1] += std::fabs(put[j]);
        }
    } else if (!fresh) {
        for (std::size_t j = 0; j < n; ++j) out[j] += put[j];
    }
}

template <class Leaf>
AXIL_INLINE void move(const Job<Leaf>& job, std::size_t number, std::size_t begin, std::size_t n) {
    const Move& one = job.program.moves[number];
    const Leaf* AXIL_RESTRICT leaf = job.leaves.tree(static_cast<std::size_t>(one.tree)) + job.first + begin;
    const double* AXIL_RESTRICT step = job.program.steps + job.steps[number];
    double* AXIL_RESTRICT s = job.state + static_cast<std::size_t>(one.output) * job.rows + begin;
    if (job.program.product)
        for (std::size_t j = 0; j < n; ++j) s[j] *= step[leaf[j]];
    else
        for (std::size_t j = 0; j < n; ++j) s[j] += step[leaf[j]];
}

// A term and a move of one tree and output, where nothing is drawn, in one pass.
template <class Leaf>
AXIL_INLINE void term_and_move(const Job<Leaf>& job, std::size_t i, std::size_t m, std::size_t begin, std::size_t n,
                               const double* AXIL_RESTRICT g) {
    const Term& one = job.program.terms[i];
    const Leaf* AXIL_RESTRICT leaf = job.leaves.tree(static_cast<std::size_t>(one.tree)) + job.first + begin;
    const double* AXIL_RESTRICT scale = job.program.scales + job.scales[i];
    const double* AXIL_RESTRICT step = job.program.steps + job.steps[m];
    double* AXIL_RESTRICT s = job.state + static_cast<std::size_t>(one.output) * job.rows + begin;
    double* AXIL_RESTRICT out = job.out + static_cast<std::size_t>(one.place) * job.rows + begin;
    for (std::size_t j = 0; j < n; ++j) {
        const std::size_t l = leaf[j];
        out[j] = scale[l] * g[j];
        s[j] *= step[l];
    }
}

template <class Leaf>
AXIL_INLINE void block(const Job<Leaf>& job, std::size_t begin, std::size_t n) {
    const Program& program = job.program;
    double g[block_rows], total[block_rows], put[block_rows];
    for (std::size_t r = 0; r < program.rounds; ++r) {
        const auto bound = [&](std::size_t i, std::size_t kind) {
            return static_cast<std::size_t>(program.bounds[2 * i + kind]);
        };
        if (program.link == Program::share) {
            std::fill(total, total + n, 0.0);
            for (std::size_t k = 0; k < program.outputs; ++k) {
                const double* s = job.state + k * job.rows + begin;
                for (std::size_t j = 0; j < n; ++j) total[j] += s[j];
            }
        }
        const std::size_t t = bound(r, 0), m = bound(r, 1);
        if (bound(r + 1, 0) == t + 1 && bound(r + 1, 1) == m + 1 && !job.sums && !program.draws && program.product &&
            job.fresh[t] && program.terms[t].tree == program.moves[m].tree &&
            program.terms[t].output == program.moves[m].output) {
            gradient(job, static_cast<std::size_t>(program.terms[t].output), begin, n, total, g);
            term_and_move(job, t, m, begin, n, g);
            continue;
        }
        for (std::size_t i = bound(r, 0); i < bound(r + 1, 0); ++i) {
            if (i == bound(r, 0) || program.terms[i].output != program.terms[i - 1].output)
                gradient(job, static_cast<std::size_t>(program.terms[i].output), begin, n, total, g);
            term(job, i, begin, n, g, put);
        }
        for (std::size_t i = bound(r, 1); i < bound(r + 1, 1); ++i) move(job, i, begin, n);
    }
}

template <std::size_t, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end) {
    for (; begin < end; begin += block_rows) block(job, begin, std::min(block_rows, end - begin));
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF) AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size begin, Size end), (job, begin, end))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

// Where the tables of all terms, or of all moves, begin.
template <class Leaf, class One>
std::vector<Size> begins(const Leaves<Leaf>& leaves, const One* list, Size n) {
    std::vector<Size> found{0};
    for (Size i = 0; i < n; ++i) found.push_back(found.back() + leaves.count(static_cast<Size>(list[i].tree)));
    return found;
}

}  // namespace gradients

template <class Leaf>
void gradient_factors(const Leaves<Leaf>& leaves, const Program& program, const double* intercepts,
                      const double* slopes, double* state, std::size_t first, std::size_t rows, std::size_t places,
                      double* out, const Crew& crew) {
    using namespace gradients;
    const auto scales = begins(leaves, program.terms, program.n_terms);
    const auto steps = begins(leaves, program.moves, program.n_moves);
    std::vector<bool> fresh, taken(places);
    for (Size i = 0; i < program.n_terms; ++i) {
        const Size place = static_cast<Size>(program.terms[i].place);
        fresh.push_back(!taken[place]);
        taken[place] = true;
    }
    for (Size i = 0; i < places; ++i)
        if (!taken[i]) std::fill_n(out + i * rows, rows, 0.0);
    const Job<Leaf> job{leaves, program, scales, steps, fresh, intercepts, slopes, state, first, rows, out, nullptr};
    const Size visits = std::max<Size>(program.n_terms + program.n_moves, 1);
    const Chunks chunks(rows, std::max<Size>(least_work / visits, block_rows), most_chunks);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) { chunk(job, chunks.begin(i), chunks.end(i)); });
}

template <class Leaf>
void gradient_sums(const Leaves<Leaf>& leaves, const Program& program, const double* intercepts, const double* slopes,
                   double* state, std::size_t first, std::size_t rows, double* sums, const Crew& crew) {
    using namespace gradients;
    const auto scales = begins(leaves, program.terms, program.n_terms);
    const auto steps = begins(leaves, program.moves, program.n_moves);
    const std::vector<bool> fresh;
    const Size size = 2 * scales.back(), visits = std::max<Size>(program.n_terms + program.n_moves, 1);
    // All partial sums together take no more than 64 bytes a row.
    const Chunks chunks(rows, std::max({least_work / visits, block_rows, size / 8}), most_summed);
    const Buffer partials(chunks.count() * std::max<Size>(size, 1));
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        double* own = partials.get() + i * size;
        std::fill(own, own + size, 0.0);
        const Job<Leaf> job{leaves, program, scales, steps, fresh,   intercepts,
                            slopes, state,   first,  rows,  nullptr, own};
        chunk(job, chunks.begin(i), chunks.end(i));
    });
    add_up(partials.get(), chunks.count(), size, crew);
    for (Size i = 0; i < size; ++i) sums[i] += partials.get()[i];
}

AXIL_INSTANTIATE(gradient_sums)

AXIL_INSTANTIATE(gradient_factors)

template <class Leaf>
void factor_sums(const Leaves<Leaf>& leaves, const TreeList& trees, const double* factors, const std::int64_t* codes,
                 std::size_t groups, std::size_t first, std::size_t rows, double* sums, const Crew& crew) {
    std::vector<std::size_t> begin{0};
    for (std::size_t i = 0; i < trees.size; ++i) begin.push_back(begin.back() + leaves.count(trees[i]) * groups);
    parallel(crew, trees.size, [&](std::size_t i, std::size_t) {
        const Leaf* leaf = leaves.tree(trees[i]) + first;
        const double* own = factors + i * rows;
        double* out = sums + begin[i];
        if (groups == 1)
            for (std::size_t j = 0; j < rows; ++j) out[leaf[j]] += own[j];
        else
            for (std::size_t j = 0; j < rows; ++j) out[leaf[j] * groups + static_cast<std::size_t>(codes[j])] += own[j];
    });
}

AXIL_INSTANTIATE(factor_sums)

}  // namespace axil
