// Memory that begins at a cache line, so that whole vectors never straddle two.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace axil {

// Not initialised.
template <class T>
class BufferOf {
public:
    explicit BufferOf(std::size_t size) : data_(static_cast<T*>(::operator new(size * sizeof(T), line))) {}
    T* get() const { return data_.get(); }

private:
    static constexpr std::align_val_t line{64};
    struct Delete {
        void operator()(T* p) const { ::operator delete(p, line); }
    };
    std::unique_ptr<T, Delete> data_;
};

using Buffer = BufferOf<double>;

}  // namespace axil
