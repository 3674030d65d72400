// deletions: the walk of each row through the trees of the fit without it; see _core.pyi.
//
// Pairs of trees are outside and rows inside: the part of the table that some trees meet stays in the nearest caches while a
// chunk of rows goes by. The chunk is as large as the second or last cache takes what its rows have added so far, because all of
// the table is read once per chunk. No row depends on another, and what a row sums up comes in the order of the trees.
#include <array>
#include <cmath>
#include <vector>

#include "buffer.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace deleting {

constexpr std::size_t chunk_bytes = 6 << 20;  // of additions that a chunk's rows have made
constexpr std::size_t least_rows = 64, most_rows = 8192;
constexpr std::size_t least_share = 512;  // rows worth handing to a thread
// Trees whose part of the table is 32 KiB where they have 31 leaves.
constexpr std::size_t trees_together = 2, others_together = 4;

// A row in its leaf, and the leaf without it: a' / a, a w, w, 1 / a' - 1 / a, and what the sum of a leaf that no row is left
// in loses besides, with a and a' the scales with and without the row, and w its weight. A constant leaf stays as it is.
struct Factors {
    double kept, drawn, weight, stiffer, constant;
};

inline Factors factors_of(const LeafRule& leaf, const double* shift, double weight) {
    double left = leaf.weight - weight, scale = 0;
    if (!(left > leaf.least)) left = 0;
    const bool moving = leaf.scale > 0;
    if (moving && (!shift || left > 0)) {  // a shift would be all that is left of the value
        scale = left + leaf.l2 > 0 ? 1.0 / (left + leaf.l2) : 0.0;
        if (leaf.steps > 1 && left > 0 && std::isfinite(leaf.l2))
            scale = (1.0 - std::pow(leaf.l2 * scale, leaf.steps)) / left;
    }
    const double stiffer = leaf.steps > 1 ? 1.0 / scale - 1.0 / leaf.scale : -weight;  // exactly, after one step
    return {moving ? scale / leaf.scale : 1.0, leaf.scale * weight, weight, scale > 0 ? stiffer : 0.0,
            shift && moving && scale == 0 ? *shift / leaf.scale : 0.0};
}

// The factors of all cells, where rows weigh the same.
template <class Leaf>
std::vector<Factors> cell_factors(const Deletions<Leaf>& job) {
    std::vector<Factors> found;
    if (job.weights) return found;
    found.reserve(job.cells.total());
    for (std::size_t t = 0; t < job.cells.trees; ++t)
        for (std::size_t level = 0; level < job.levels; ++level) {
            const std::size_t first = job.cells.start(t) / job.levels, last = job.cells.start(t + 1) / job.levels;
            for (std::size_t l = first; l < last; ++l)
                found.push_back(factors_of(job.rules[l], job.shifts ? job.shifts + l : nullptr, job.draws[level]));
        }
    return found;
}

// Some rows in all trees.
template <class Leaf>
class Chunk {
public:
    Chunk(const Deletions<Leaf>& job, const std::vector<Factors>& of_cells, std::size_t begin, std::size_t end)
        : job_(job), of_cells_(of_cells), begin_(begin), rows_(end - begin), trees_(job.cells.trees),
          additions_(job.added ? 0 : job.outputs * trees_ * rows_), values_(job.outputs * remembered() * rows_),
          residuals_(job.outputs * rows_), sums_(job.outputs * trees_together * rows_) {
        number_leaves();
    }

    void walk() {
        for (std::size_t k = 0; k < job_.outputs; ++k)
            std::copy_n(job_.start + k * job_.rows + begin_, rows_, residuals_.get() + k * rows_);
        for (std::size_t t = 0; t < trees_; t += trees_together) {
            const std::size_t together = std::min(trees_together, trees_ - t);
            std::fill_n(sums_.get(), job_.outputs * trees_together * rows_, 0.0);
            std::size_t s = 0;
            for (; s + others_together <= t; s += others_together)
                together == 1 ? meet<1, others_together>(t, 0, s) : meet<trees_together, others_together>(t, 0, s);
            for (; s < t; ++s) together == 1 ? meet<1, 1>(t, 0, s) : meet<trees_together, 1>(t, 0, s);
            for (std::size_t p = 0; p < together; ++p) {
                for (; s < t + p; ++s) meet<1, 1>(t, p, s);
                for (std::size_t k = 0; k < job_.outputs; ++k) take(t + p, k, sums(k, p));
            }
        }
        for (std::size_t k = 0; k < job_.outputs; ++k) note(trees_, k);
    }

private:
    std::size_t remembered() const { return job_.in_turn ? 1 : trees_; }
    double* values(std::size_t k, std::size_t t) const {
        return values_.get() + (k * remembered() + (job_.in_turn ? 0 : t)) * rows_;
    }
    double* sums(std::size_t k, std::size_t p) const { return sums_.get() + (k * trees_together + p) * rows_; }
    double* added(std::size_t k, std::size_t t) const {
        return job_.added ? job_.added + (k * trees_ + t) * job_.rows + begin_
                          : additions_.get() + (k * trees_ + t) * rows_;
    }
    std::size_t leaves_before(std::size_t t) const { return job_.cells.start(t) / job_.levels; }
    const Leaf* cells(std::size_t t) const { return job_.cells.tree(t) + job_.first + begin_; }
    const Leaf* leaves(std::size_t t) const { return job_.levels == 1 ? cells(t) : leaves_.data() + t * rows_; }

    void number_leaves() {
        if (job_.levels == 1) return;
        leaves_.resize(trees_ * rows_);
        for (std::size_t t = 0; t < trees_; ++t) {
            const auto n = static_cast<Leaf>(job_.cells.count(t) / job_.levels);
            for (std::size_t j = 0; j < rows_; ++j) leaves_[t * rows_ + j] = static_cast<Leaf>(cells(t)[j] % n);
        }
    }

    // Add what the rows' leaves in the trees s .. s + Q - 1 send to those in t + p .. t + p + P - 1.
    template <std::size_t P, std::size_t Q>
    void meet(std::size_t t, std::size_t p, std::size_t s) const {
        std::array<const double*, P * Q> table;
        std::array<const Leaf*, P> own;
        std::array<const Leaf*, Q> other;
        for (std::size_t a = 0; a < P; ++a) {
            own[a] = leaves(t + p + a);
            for (std::size_t b = 0; b < Q; ++b)
                table[a * Q + b] = job_.table + leaves_before(t + p + a) * job_.stride + leaves_before(s + b);
        }
        for (std::size_t b = 0; b < Q; ++b) other[b] = leaves(s + b);
        for (std::size_t k = 0; k < job_.outputs; ++k) {
            std::array<double*, P> sum;
            std::array<const double*, Q> sent;
            for (std::size_t a = 0; a < P; ++a) sum[a] = sums(k, p + a);
            for (std::size_t b = 0; b < Q; ++b) sent[b] = added(k, s + b);
            for (std::size_t j = 0; j < rows_; ++j) {
                double total[P];
                std::size_t row[P];
                AXIL_UNROLL for (std::size_t a = 0; a < P; ++a) {
                    total[a] = sum[a][j];
                    row[a] = own[a][j] * job_.stride;
                }
                AXIL_UNROLL for (std::size_t b = 0; b < Q; ++b) {
                    const double x = sent[b][j];
                    const std::size_t column = other[b][j];
                    AXIL_UNROLL for (std::size_t a = 0; a < P; ++a) total[a] += table[a * Q + b][row[a] + column] * x;
                }
                AXIL_UNROLL for (std::size_t a = 0; a < P; ++a) sum[a][j] = total[a];
            }
        }
    }

    void note(std::size_t t, std::size_t k) const {
        if (job_.residuals)
            std::copy_n(residuals_.get() + k * rows_, rows_,
                        job_.residuals + (k * (trees_ + 1) + t) * job_.rows + begin_);
    }

    // The rows' own leaves in tree t, once all that earlier trees send there is in the sums.
    void take(std::size_t t, std::size_t k, const double* sum) const {
        note(t, k);
        const Leaf *cell = cells(t), *leaf = leaves(t);
        const std::size_t before = leaves_before(t);
        const double* base = job_.base + k * job_.rows + begin_;
        const double* changed = job_.changed + k * job_.rows + begin_;
        double *residual = residuals_.get() + k * rows_, *value = values(k, t), *out = added(k, t);
        const auto follow = [&](std::size_t j, const Factors& f) {
            const double seen = job_.values[(before + leaf[j]) * job_.outputs + k] +
                                changed[j] * job_.slopes[before + leaf[j]] + sum[j];
            value[j] = f.kept * (seen - f.drawn * residual[j]);
            out[j] = -(f.weight * residual[j] + f.stiffer * value[j] + f.constant);
        };
        const std::size_t n = job_.cells.count(t) / job_.levels;
        if (!job_.weights)
            for (std::size_t j = 0; j < rows_; ++j) follow(j, of_cells_[job_.cells.start(t) + cell[j]]);
        else
            for (std::size_t j = 0; j < rows_; ++j) {
                const std::size_t level = job_.levels == 1 ? 0 : cell[j] / n, at = before + leaf[j];
                const double weight = job_.draws[level] * job_.weights[begin_ + j];
                follow(j, factors_of(job_.rules[at], job_.shifts ? job_.shifts + at : nullptr, weight));
            }
        for (std::size_t s = job_.in_turn ? t : 0; s <= t; ++s) {
            const double step = job_.steps[t * trees_ + s], *own = values(k, s);
            if (step != 0)
                for (std::size_t j = 0; j < rows_; ++j) residual[j] -= step * own[j];
        }
        if (job_.drifts[t] != 0)
            for (std::size_t j = 0; j < rows_; ++j) residual[j] -= job_.drifts[t] * base[j];
    }

    const Deletions<Leaf>& job_;
    const std::vector<Factors>& of_cells_;
    const std::size_t begin_, rows_, trees_;
    std::vector<Leaf> leaves_;  // (trees, rows); none where cells are leaves
    const Buffer additions_;    // (outputs, trees, rows); none where they are wanted
    const Buffer values_;       // (outputs, trees, rows), of the last tree alone where no other is looked at again
    const Buffer residuals_;    // (outputs, rows)
    const Buffer sums_;         // (outputs, trees together, rows)
};

}  // namespace deleting

template <class Leaf>
void deletions(const Deletions<Leaf>& job, const Crew& crew) {
    using namespace deleting;
    if (job.rows == 0 || job.outputs == 0) return;
    const std::size_t of_row = sizeof(double) * std::max<std::size_t>(job.outputs * job.cells.trees, 1);
    const std::size_t shared = std::max(job.rows / crew.n_threads, least_share);  // no row depends on how they are cut
    const std::size_t most = std::min(std::clamp(chunk_bytes / of_row, least_rows, most_rows), shared);
    const Chunks chunks(job.rows, most, job.rows / most + 1);
    const auto of_cells = cell_factors(job);
    parallel(crew, chunks.count(),
             [&](std::size_t i, std::size_t) { Chunk<Leaf>(job, of_cells, chunks.begin(i), chunks.end(i)).walk(); });
}

AXIL_INSTANTIATE(deletions)

}  // namespace axil
