// cooccurrence: the weight of the rows that two leaves of different trees share.
#include <vector>

#include "kernels.hpp"

namespace axil {

template <class Leaf>
void cooccurrence(const Leaves<Leaf>& leaves, const double* weights, double* out, const Crew& crew) {
    const std::size_t total = leaves.total();
    std::fill(out, out + total * total, 0.0);
    parallel(crew, leaves.trees, [&](std::size_t s) {
        const Leaf* earlier = leaves.tree(s);
        for (std::size_t t = s + 1; t < leaves.trees; ++t) {
            const Leaf* later = leaves.tree(t);
            double* corner = out + leaves.start(s) * total + leaves.start(t);
            for (std::size_t i = 0; i < leaves.rows; ++i)
                corner[earlier[i] * total + later[i]] += weights ? weights[i] : 1.0;
        }
    });
}

template void cooccurrence(const Leaves<std::uint8_t>&, const double*, double*, const Crew&);
template void cooccurrence(const Leaves<std::uint16_t>&, const double*, double*, const Crew&);
template void cooccurrence(const Leaves<std::uint32_t>&, const double*, double*, const Crew&);

}  // namespace axil
