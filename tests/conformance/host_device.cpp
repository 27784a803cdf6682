// SPDX-License-Identifier: Apache-2.0
// The host's operators, and the fp64 loops with which all are compared.
#include "tests/conformance/host_memory.hpp"

namespace vocabpipe::kernels::test {

std::vector<DeviceUnderTest> devices_under_test() {
    return {{.name = "reference",
             .open = []() -> std::unique_ptr<TestDevice> {
                 return std::make_unique<HostMemory>(reference_operators());
             },
             .reference = true},
            {.name = "host", .open = []() -> std::unique_ptr<TestDevice> {
                 return std::make_unique<HostMemory>(host::operators());
             }}};
}

}  // namespace vocabpipe::kernels::test
