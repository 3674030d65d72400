// Loops over chunks on a bounded number of threads.
//
// No result depends on n_threads. Chunks that have sums of their own are cut by the sizes of the data alone, and their sums are
// added up in chunk order. Only where no row (deletion.cpp) or query (blocks.cpp) depends on the others of its chunk does the
// number of threads have a say in how chunks are cut.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

namespace axil {

// The caller's threads, and its question whether to stop (asked on the calling thread only; may be empty).
struct Crew {
    std::size_t n_threads = 1;
    std::function<bool()> interrupted;
};

// Thrown by `parallel` on the calling thread, after all others have stopped.
struct Interrupted {};

// task(i, thread): do the i-th piece of work, on that of the threads (for its own scratch memory; never for results).
using Task = std::function<void(std::size_t, std::size_t)>;

// Do the tasks 0, ..., n - 1, each once, on the calling thread and up to n_threads - 1 others.
// An exception in a task stops the rest and is thrown again on the calling thread.
void parallel(const Crew& crew, std::size_t n, const Task& task);

// Rows cut into consecutive chunks of nearly equal length.
class Chunks {
public:
    // As many chunks as give each at least `least` rows, but no more than `most`.
    Chunks(std::size_t rows, std::size_t least, std::size_t most)
        : rows_(rows), count_(std::clamp<std::size_t>(rows / std::max<std::size_t>(least, 1), 1, most)) {}

    std::size_t count() const { return count_; }
    std::size_t begin(std::size_t i) const { return i == count_ ? rows_ : rows_ / count_ * i / step * step; }
    std::size_t end(std::size_t i) const { return begin(i + 1); }

private:
    static constexpr std::size_t step = 64;  // so that only the last chunk ends in an odd number of rows
    std::size_t rows_, count_;
};

// Add the partial sums of `count` chunks, `size` numbers each, in chunk order to those of the first.
void add_up(double* partials, std::size_t count, std::size_t size, const Crew& crew);

}  // namespace axil
