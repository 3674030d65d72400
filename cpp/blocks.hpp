// Blocks of alike training rows, and the k largest of a read-out without reading every row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels.hpp"

namespace axil {

// The rows in an order in which those of a block have few different leaves, and which leaves those are.
class Blocks {
public:
    virtual ~Blocks() = default;

    virtual std::size_t rows() const = 0;
    virtual std::size_t total() const = 0;  // leaves of all trees
    virtual std::size_t bytes() const = 0;

    // What top_rows does, for the queries whose largest are found within `most` look-ups; done[s] says of which.
    virtual void top(const double* table, std::size_t columns, const double* constant, const double* weights,
                     const double* scale, std::size_t k, std::size_t most, double* values, std::int64_t* rows,
                     std::uint8_t* done, const Crew& crew) const = 0;
};

// Rows whose places (rows, dimensions) lie close together come into one block. Null: the blocks are so mixed that their
// lists of leaves would be as long as a fifth of all rows' leaves, so that nothing would be won; or there are too many leaves.
template <class Leaf>
std::unique_ptr<Blocks> blocks_of(const Leaves<Leaf>& leaves, const float* places, std::size_t dimensions,
                                  const Crew& crew);

namespace blocking {

constexpr std::size_t block_rows = 32;     // of a block of the first level
constexpr std::size_t branches = 8;        // blocks that make one of the next level
constexpr std::size_t least_blocks = 256;  // of the last level, where every query begins

// (rows,): the rows in the order of a k-d tree whose leaves are blocks.
std::unique_ptr<std::uint32_t[]> order_of(const float* places, std::size_t rows, std::size_t dimensions,
                                          const Crew& crew);

}  // namespace blocking
}  // namespace axil
