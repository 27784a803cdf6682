// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/test_world.hpp"
#include "tests/tiles/faulty_transport.hpp"

#include <functional>
#include <memory>

namespace vocabpipe::testing {

/// Runs on every rank; `messages`: over a transport that says of no two ranks that they are near.
inline void on_every_rank(TestWorld world, bool messages,
                          const std::function<void(Communicator&)>& body) {
    world.run([&](Communicator& c) {
        if (!messages) {
            body(c);
            return;
        }
        Communicator apart(std::make_unique<FaultyTransport>(c.transport()), c.wait_options());
        body(apart);
    });
}

}  // namespace vocabpipe::testing
