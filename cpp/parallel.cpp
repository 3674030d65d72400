#include "parallel.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace axil {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto poll_every = std::chrono::milliseconds(50);

class Tasks {
public:
    Tasks(std::size_t n, const Task& task) : n_(n), task_(task) {}

    // Take tasks until none is left. `interrupted` is empty on all threads but the calling one.
    void work(std::size_t thread, const std::function<bool()>& interrupted) noexcept {
        try {
            auto polled = Clock::now();
            for (std::size_t i; !stop_ && (i = next_++) < n_;) {
                task_(i, thread);
                if (interrupted && Clock::now() - polled > poll_every) {
                    polled = Clock::now();
                    if (interrupted()) throw Interrupted();
                }
            }
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!error_) error_ = std::current_exception();
            stop_ = true;
        }
    }

    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    const std::size_t n_;
    const Task& task_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
};

}  // namespace

void parallel(const Crew& crew, std::size_t n, const Task& task) {
    Tasks tasks(n, task);
    std::vector<std::thread> others;
    const std::size_t n_others = std::min(crew.n_threads, n) - std::min<std::size_t>(n, 1);
    others.reserve(n_others);
    try {
        for (std::size_t i = 1; i <= n_others; ++i) others.emplace_back([&tasks, i] { tasks.work(i, {}); });
    } catch (const std::exception&) {
        // The system has no more threads to give, or no memory for them: the ones we have do all the work.
    }
    tasks.work(0, crew.interrupted);
    for (auto& thread : others) thread.join();
    tasks.rethrow();
}

void add_up(double* partials, std::size_t count, std::size_t size, const Crew& crew) {
    const Chunks slices(size, 1 << 12, 64);
    parallel(crew, slices.count(), [&](std::size_t slice, std::size_t) {
        for (std::size_t chunk = 1; chunk < count; ++chunk)
            for (std::size_t i = slices.begin(slice); i < slices.end(slice); ++i)
                partials[i] += partials[chunk * size + i];
    });
}

}  // namespace axil
