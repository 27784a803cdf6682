// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/world.hpp"
#include "src/runtime/transport/mpi/transport.hpp"
#include "src/runtime/transport/shared_memory/transport.hpp"

namespace vocabpipe::mpi {

namespace {

class MpiWorld final : public World::Implementation {
public:
    MpiWorld(WaitOptions wait, MpiOptions options)
        : wait_(std::move(wait)), options_(std::move(options)) {}

    [[nodiscard]] int size() const override { return session_.size(); }
    void abort(int exit_code) noexcept override { session_.abort(exit_code); }
    void run(const std::function<void(Communicator&)>& body) override {
        Communicator communicator(session_.make_transport(), wait_);
        if (options_.before_connecting) options_.before_connecting(communicator);
        if (options_.shared_memory) {
            communicator = shared_memory::connect_hosts(
                std::move(communicator), {.node = session_.node(), .note = options_.note});
        }
        body(communicator);
    }

private:
    Session session_;
    WaitOptions wait_;
    MpiOptions options_;
};

}  // namespace

std::unique_ptr<World::Implementation> make_world(WaitOptions wait, MpiOptions options) {
    return std::make_unique<MpiWorld>(std::move(wait), std::move(options));
}

}  // namespace vocabpipe::mpi
