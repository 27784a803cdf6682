// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/modelled_host.hpp"

#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/transport/modelled_link.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::bench {

namespace {

class ModelledHost final : public ForwardingDevice {
public:
    explicit ModelledHost(const Link& link) : ForwardingDevice(make_host_device()), link_(link) {}

    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        return make_modelled_link(communicator.transport(), link_);
    }

private:
    Link link_;
};

}  // namespace

std::unique_ptr<Device> make_modelled_host(const Link& link) {
    return std::make_unique<ModelledHost>(link);
}

}  // namespace vocabpipe::bench
