// top: the running k largest |scale * value| of every query over blocks of rows.
// top_rows: the same of what read_out would give, without writing it down.
//
// Each thread collects, per query, what beats the k-th largest so far: few rows after the first ones, so nearly all the
// time goes into one comparison per value. Size and then row number order the rows completely, so neither chunks nor
// threads can change the outcome.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "lookups.hpp"
#include "ranking.hpp"

namespace axil {
namespace ranking {

constexpr std::size_t screen_rows = 64;
constexpr std::size_t least_rows = 1024, least_numbers = 100000;  // of a chunk

struct Block {
    const double* values;  // (rows, columns)
    std::size_t rows, columns, first;
    const double* scale;

    double scale_of(std::size_t j) const { return scale ? scale[first + j] : 1.0; }
};

// hits[i]: does any value of row begin + i exceed its query's least?
template <std::size_t>
AXIL_INLINE void screen_lanes(const Block& block, std::size_t begin, std::size_t n, const double* least,
                              std::uint64_t* hits) {
    for (std::size_t i = 0; i < n; ++i) {
        const double* row = block.values + (begin + i) * block.columns;
        const double scale = block.scale_of(begin + i);
        std::uint64_t hit = 0;  // as wide as a double, so that it vectorises
        for (std::size_t s = 0; s < block.columns; ++s) hit |= std::fabs(scale * row[s]) > least[s] ? 1 : 0;
        hits[i] = hit;
    }
}

using Size = std::size_t;
AXIL_VERSIONS(screen, (const Block& block, Size begin, Size n, const double* least, std::uint64_t* hits),
              (block, begin, n, least, hits))

// Offer what may count among the rows begin .. end - 1 of a block.
void add(Largest& largest, const Block& block, std::size_t begin, std::size_t end) {
    std::uint64_t hits[screen_rows];
    for (; begin < end; begin += screen_rows) {
        const std::size_t n = std::min(screen_rows, end - begin);
        screen(block, begin, n, largest.least(), hits);
        for (std::size_t i = 0; i < n; ++i) {
            if (!hits[i]) continue;
            const std::size_t j = begin + i;
            const double *row = block.values + j * block.columns, scale = block.scale_of(j);
            for (std::size_t s = 0; s < block.columns; ++s)
                largest.offer(s, {std::fabs(scale * row[s]), row[s], static_cast<std::int64_t>(block.first + j)});
        }
    }
}

}  // namespace ranking

void top(const double* block, std::size_t n_rows, std::size_t columns, std::size_t first, const double* scale,
         std::size_t k, double* values, std::int64_t* rows, const Crew& crew) {
    using namespace ranking;
    if (k == 0 || columns == 0) return;
    const auto standing = [&](std::size_t s) { return Standing(values + s * k, rows + s * k, k, scale); };
    std::vector<double> least(columns);
    for (std::size_t s = 0; s < columns; ++s) least[s] = standing(s).least(first);

    // A chunk holds at most 2 k + 16 candidates a query: never much more than the block itself.
    const Chunks chunks(n_rows, std::max({least_rows, 4 * k, least_numbers / columns}), 64);
    std::vector<Largest> found(chunks.count(), Largest(k, least));
    const Block rows_of{block, n_rows, columns, first, scale};
    parallel(crew, chunks.count(),
             [&](std::size_t i, std::size_t) { add(found[i], rows_of, chunks.begin(i), chunks.end(i)); });

    merge(found, columns, k, standing, crew);
}

// -- top_rows ---------------------------------------------------------------------------------------------------------
//
// A screen in single precision, at half the loads, leaves few values to be computed in double. Its sums and its factors are in
// units of powers of two, so that neither of them overflows, and what underflows is far below all that counts.
namespace screening {

using ranking::Candidate;
using ranking::Largest;

constexpr std::size_t width = 32;  // columns of a tile
constexpr std::size_t block_rows = 2048, chunk_rows = 8192;
constexpr float caution = 1e-6f;     // more than the screen's own few roundings
constexpr float minute = 0x1p-126f;  // more than is lost where a factor or a size underflows
constexpr double rounding = 0x1p-24;
constexpr int least_exponent = -32, most_exponent = 16;  // of a bound whose sums are read as they are

// The power of two that numbers of this size are measured in.
inline int exponent_of(double size) {
    int exponent = 0;
    if (std::isfinite(size)) std::frexp(size, &exponent);
    return std::clamp(exponent, -1000, 1000);
}

// The columns of a tile in single precision.
struct Scaled {
    int exponents[width] = {};  // their units
    float constant[width] = {};
    float slack[width] = {};  // how far off a sum may be
};

// What the rows' values are multiplied by.
struct Factors {
    const double *weights, *scale;
    int exponent = 0;
    double unit = 1;  // 2 to -exponent

    Factors(const double* weights_, const double* scale_, std::size_t rows) : weights(weights_), scale(scale_) {
        if (!weights && !scale) return;
        double largest = 0;
        for (std::size_t j = 0; j < rows; ++j)
            if (const double size = std::fabs(of(j)); size > largest && std::isfinite(size)) largest = size;
        exponent = exponent_of(largest);
        unit = std::ldexp(1.0, -exponent);
    }

    double of(std::size_t j) const { return (weights ? weights[j] : 1.0) * (scale ? scale[j] : 1.0); }
    float in_units(std::size_t j) const { return static_cast<float>(std::fabs(of(j)) * unit); }
};

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const std::vector<Lookup>& lookups;
    const double* table;  // (leaves, columns)
    const double* constant;
    const Factors& factors;
    std::size_t columns, first_column;
    Tile tile;
    const float* packed;  // the tile's part of the joined table
    Scaled scaled;
};

// A value as read_out computes it.
template <class Leaf>
double exactly(const Job<Leaf>& job, std::size_t j, std::size_t query) {
    const double sum = exact_sum(job.lookups, job.constant[query], [&](std::size_t t) {
        return job.table[(job.leaves.start(t) + job.leaves.tree(t)[j]) * job.columns + query];
    });
    return job.factors.weights ? job.factors.weights[j] * sum : sum;
}

// Sums of a block in single precision, (rows, width).
template <std::size_t W, class Leaf>
AXIL_INLINE void sum_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t rows, IdOf<Leaf>* ids, float* sums) {
    for (std::size_t r = 0; r < rows; ++r) std::copy_n(job.scaled.constant, width, sums + r * width);
    add_all<float, width, W>(job.leaves, job.lookups, job.packed, begin, rows, block_rows, ids, sums);
}

// hits[r]: may any value of a row exceed its query's least?
template <std::size_t>
AXIL_INLINE void sift_lanes(const float* sums, const float* factors, std::size_t rows, const float* slack,
                            const float* least, std::uint32_t* hits) {
    for (std::size_t r = 0; r < rows; ++r) {
        const float* row = sums + r * width;
        const float factor = factors[r];
        std::uint32_t hit = 0;
        for (std::size_t c = 0; c < width; ++c)
            hit |= (std::fabs(row[c]) + slack[c]) * factor + minute < least[c] ? 0 : 1;
        hits[r] = hit;
    }
}

using Size = std::size_t;
#define AXIL_SUM(LEAF)                                                                              \
    AXIL_VERSIONS(sum, (const Job<LEAF>& job, Size begin, Size rows, IdOf<LEAF>* ids, float* sums), \
                  (job, begin, rows, ids, sums))
AXIL_LEAVES(AXIL_SUM)
#undef AXIL_SUM
AXIL_VERSIONS(sift,
              (const float* sums, const float* factors, Size rows, const float* slack, const float* least,
               std::uint32_t* hits),
              (sums, factors, rows, slack, least, hits))

// One thread's work on a tile.
template <class Leaf>
class Screen {
public:
    Screen(const Job<Leaf>& job, std::size_t k, std::vector<double> least)
        : job_(job), k_(k), largest_(k, std::move(least)), ids_(most_together * block_rows), sums_(block_rows * width),
          factors_(block_rows), hits_(block_rows) {}

    void add(std::size_t begin, std::size_t end) {
        for (; begin < end; begin += block_rows) block(begin, std::min(block_rows, end - begin));
    }

    const Largest& found() const { return largest_; }

private:
    void block(std::size_t begin, std::size_t rows) {
        sum(job_, begin, rows, ids_.get(), sums_.get());
        for (std::size_t r = 0; r < rows; ++r) factors_[r] = job_.factors.in_units(begin + r);
        if (!started_ && rows >= k_) start(rows);
        float least[width];
        for (std::size_t c = 0; c < width; ++c)
            least[c] = c < job_.tile.used ? least_of(c) : std::numeric_limits<float>::infinity();
        sift(sums_.get(), factors_.data(), rows, job_.scaled.slack, least, hits_.data());
        for (std::size_t r = 0; r < rows; ++r)
            if (hits_[r]) look(begin, r);
    }

    // The first block's k-th largest size, at the least, is one to beat: no need to compute all of the block exactly.
    void start(std::size_t rows) {
        started_ = true;
        std::vector<float> sizes(rows);
        for (std::size_t c = 0; c < job_.tile.used; ++c) {
            for (std::size_t r = 0; r < rows; ++r)
                sizes[r] = std::fmax(
                    (std::fabs(sums_.get()[r * width + c]) - job_.scaled.slack[c]) * factors_[r] - minute,
                    0.0f);  // not NaN
            std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(k_ - 1), sizes.end(),
                             std::greater<float>());
            const double size = std::ldexp(double{below(sizes[k_ - 1])}, exponent(c));
            if (std::isfinite(size) && size >= std::numeric_limits<double>::min())
                largest_.raise(c, size);  // all its digits
        }
    }

    void look(std::size_t begin, std::size_t r) {
        const std::size_t j = begin + r;
        for (std::size_t c = 0; c < job_.tile.used; ++c) {
            const float size = (std::fabs(sums_.get()[r * width + c]) + job_.scaled.slack[c]) * factors_[r] + minute;
            if (size < least_of(c)) continue;
            const double value = exactly(job_, j, job_.first_column + c);
            const double scale = job_.factors.scale ? job_.factors.scale[j] : 1.0;
            largest_.offer(c, {std::fabs(scale * value), value, static_cast<std::int64_t>(j)});
        }
    }

    static float below(double size) { return static_cast<float>(size) * (1 - caution); }
    int exponent(std::size_t c) const { return job_.scaled.exponents[c] + job_.factors.exponent; }
    float least_of(std::size_t c) const { return below(std::ldexp(largest_.least(c), -exponent(c))); }

    const Job<Leaf>& job_;
    std::size_t k_;
    Largest largest_;
    BufferOf<IdOf<Leaf>> ids_;
    BufferOf<float> sums_;
    std::vector<float> factors_;
    std::vector<std::uint32_t> hits_;
    bool started_ = false;
};

// The columns of a tile. Every partial sum is at most the sum of the trees' largest entries.
template <class Leaf>
Scaled scaled_of(const Job<Leaf>& job) {
    std::size_t roundings = job.lookups.size() + 3;  // of sums of look-ups
    std::size_t together = 0;                        // of the sums of trees in these
    for (const Lookup& lookup : job.lookups) together = std::max(together, lookup.numbers());
    Scaled made;
    for (std::size_t c = 0; c < job.tile.used; ++c) {
        const double constant = job.constant[job.first_column + c];
        double bound = std::fabs(constant);
        for (std::size_t t = 0; t < job.leaves.trees; ++t) {
            double most = 0.0;
            for (std::size_t l = job.leaves.start(t); l < job.leaves.start(t + 1); ++l)
                most = std::max(most, std::fabs(job.table[l * job.columns + job.first_column + c]));
            bound += most;
        }
        const int exponent = exponent_of(bound);
        made.exponents[c] = exponent < least_exponent || exponent > most_exponent ? exponent : 0;
        made.constant[c] = static_cast<float>(std::ldexp(constant, -made.exponents[c]));
        made.slack[c] = static_cast<float>(std::ldexp(bound, -made.exponents[c]) *
                                           static_cast<double>(roundings + together) * rounding);
    }
    return made;
}

// Join the trees of a tile, in its units.
template <class Leaf>
void join_scaled(const Job<Leaf>& job, float* packed, const Crew& crew) {
    const int* exponents = job.scaled.exponents;
    if (std::all_of(exponents, exponents + width, [](int exponent) { return exponent == 0; }))
        return join_all(job.leaves, job.lookups, job.table, job.columns, job.first_column, {job.tile}, packed, crew);
    const BufferOf<double> table(job.leaves.total() * width);
    for (std::size_t l = 0; l < job.leaves.total(); ++l)
        for (std::size_t c = 0; c < job.tile.used; ++c)
            table.get()[l * width + c] = std::ldexp(job.table[l * job.columns + job.first_column + c], -exponents[c]);
    join_all(job.leaves, job.lookups, table.get(), width, 0, {job.tile}, packed, crew);
}

}  // namespace screening

template <class Leaf>
void top_rows(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* constant,
              const double* weights, const double* scale, std::size_t k, double* values, std::int64_t* rows,
              const Crew& crew) {
    using namespace screening;
    if (k == 0 || columns == 0 || leaves.rows == 0) return;
    const auto lookups = lookups_of(leaves, leaves.rows, width);
    const std::size_t total = cells_of(lookups);
    const BufferOf<float> packed(total * width);
    const Factors factors(weights, scale, leaves.rows);
    const Chunks chunks(leaves.rows, chunk_rows, 4096);
    for (std::size_t first = 0; first < columns; first += width) {
        const std::size_t used = std::min(width, columns - first);
        const auto standing = [&](std::size_t s) {
            return ranking::Standing(values + (first + s) * k, rows + (first + s) * k, k, scale);
        };
        std::vector<double> least(used);
        for (std::size_t s = 0; s < used; ++s) least[s] = standing(s).least(0);
        Job<Leaf> job{leaves,       lookups, table, constant, factors, columns, first, Tile{0, width, used},
                      packed.get(), {}};
        job.scaled = scaled_of(job);
        join_scaled(job, packed.get(), crew);

        std::vector<std::unique_ptr<Screen<Leaf>>> screens(std::min(crew.n_threads, chunks.count()));
        parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
            if (!screens[thread]) screens[thread] = std::make_unique<Screen<Leaf>>(job, k, least);
            screens[thread]->add(chunks.begin(i), chunks.end(i));
        });
        std::vector<Largest> found;
        for (const auto& screen : screens)
            if (screen) found.push_back(screen->found());
        ranking::merge(found, used, k, standing, crew);
    }
}

AXIL_INSTANTIATE(top_rows)

}  // namespace axil
