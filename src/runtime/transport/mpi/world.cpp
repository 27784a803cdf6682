// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/world.hpp"
#include "src/runtime/transport/mpi/transport.hpp"

namespace vocabpipe::mpi {

namespace {

class MpiWorld final : public World::Implementation {
public:
    explicit MpiWorld(WaitOptions wait) : wait_(std::move(wait)) {}

    [[nodiscard]] int size() const override { return session_.size(); }
    void abort(int exit_code) noexcept override { session_.abort(exit_code); }
    void run(const std::function<void(Communicator&)>& body) override {
        Communicator communicator(session_.make_transport(), wait_);
        body(communicator);
    }

private:
    Session session_;
    WaitOptions wait_;
};

}  // namespace

std::unique_ptr<World::Implementation> make_world(WaitOptions wait) {
    return std::make_unique<MpiWorld>(std::move(wait));
}

}  // namespace vocabpipe::mpi
