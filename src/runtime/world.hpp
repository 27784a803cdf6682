// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

namespace vocabpipe {

/// Implementation of one kind of world, in a file next to its transport.
class World::Implementation {
public:
    virtual ~Implementation() = default;
    [[nodiscard]] virtual int size() const = 0;
    virtual void run(const std::function<void(Communicator&)>& body) = 0;
    virtual void abort(int exit_code) noexcept = 0;
};

namespace threads {
[[nodiscard]] std::unique_ptr<World::Implementation> make_world(int ranks, WaitOptions wait);
}
namespace mpi {
[[nodiscard]] std::unique_ptr<World::Implementation> make_world(WaitOptions wait,
                                                                MpiOptions options);
}

}  // namespace vocabpipe
