// SPDX-License-Identifier: Apache-2.0
#include "src/select/select_context.hpp"

#include "vocabpipe/error.hpp"

#include <new>

namespace vocabpipe {

void SelectContext::agree(const std::function<void()>& work) const {
    world.agree([&] {
        try {
            work();
        } catch (const std::bad_alloc&) {
            throw OutOfMemoryError("rank " + std::to_string(world.rank()) +
                                   ": out of memory; use more --partitions or more ranks, and "
                                   "--memory to have it checked before the work begins");
        }
    });
}

}  // namespace vocabpipe
