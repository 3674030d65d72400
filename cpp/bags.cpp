// bootstrap: how often each row is drawn, by the generator of NumPy's RandomState; drawn_sums: sums over the rows of each leaf,
// as often as they were drawn.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace {

// The Mersenne Twister MT19937 of Matsumoto and Nishimura, as RandomState(seed) starts it.
class Twister {
public:
    static constexpr std::size_t size = 624, middle = 397;

    explicit Twister(std::uint32_t seed) {
        for (std::size_t i = 0; i < size; ++i) {
            state_[i] = seed;
            seed = 1812433253u * (seed ^ (seed >> 30)) + static_cast<std::uint32_t>(i) + 1;
        }
    }

    // The next numbers.
    const std::array<std::uint32_t, size>& next() {
        for (std::size_t i = 0; i < size - middle; ++i) twist(i, i + 1, i + middle);
        for (std::size_t i = size - middle; i < size - 1; ++i) twist(i, i + 1, i + middle - size);
        twist(size - 1, 0, middle - 1);
        for (std::size_t i = 0; i < size; ++i) {
            std::uint32_t y = state_[i];
            y ^= y >> 11;
            y ^= (y << 7) & 0x9d2c5680u;
            y ^= (y << 15) & 0xefc60000u;
            numbers_[i] = y ^ (y >> 18);
        }
        return numbers_;
    }

private:
    void twist(std::size_t i, std::size_t after, std::size_t far) {
        const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[after] & 0x7fffffffu);
        state_[i] = state_[far] ^ (y >> 1) ^ (-(y & 1u) & 0x9908b0dfu);
    }

    std::array<std::uint32_t, size> state_, numbers_;
};

}  // namespace

void bootstrap(std::uint32_t seed, std::size_t rows, std::size_t drawn, std::int64_t* times) {
    if (rows == 1) {  // nothing to draw
        times[0] = static_cast<std::int64_t>(drawn);
        return;
    }
    std::uint32_t mask = 1;
    while (mask < rows - 1) mask = 2 * mask + 1;
    // Whether a number is beyond the rows is as good as random, so nothing branches on it: those are counted too.
    std::vector<std::uint32_t> met(std::size_t(mask) + 1);
    Twister twister(seed);
    while (drawn) {
        std::size_t taken = 0;
        const auto& numbers = twister.next();
        if (drawn >= Twister::size) {
            for (const std::uint32_t number : numbers) {
                ++met[number & mask];
                taken += (number & mask) < rows;
            }
        } else {
            for (std::size_t i = 0; i < Twister::size && taken < drawn; ++i) {
                ++met[numbers[i] & mask];
                taken += (numbers[i] & mask) < rows;
            }
        }
        drawn -= taken;
    }
    std::copy_n(met.begin(), rows, times);
}

template <class Leaf>
void drawn_sums(const Leaf* leaves, std::size_t rows, const double* draws, const double* values, std::size_t columns,
                std::size_t n_leaves, double* sums, std::int64_t* counts) {
    std::fill_n(sums, n_leaves * columns, 0.0);
    std::fill_n(counts, n_leaves, 0);
    for (std::size_t j = 0; j < rows; ++j) {
        const std::size_t leaf = leaves[j];
        for (std::size_t k = 0; k < columns; ++k) sums[leaf * columns + k] += draws[j] * values[j * columns + k];
        counts[leaf] += draws[j] > 0;
    }
}

AXIL_INSTANTIATE(drawn_sums)

}  // namespace axil
