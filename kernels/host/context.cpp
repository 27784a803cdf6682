// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/context.hpp"

#include "kernels/host/engine.hpp"
#include "kernels/host/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

Context::Context(ContextOptions options)
    : options_(std::move(options)),
      engine_(std::make_shared<kernels::host::Engine>(options_.threads)) {
    if (options_.operators == nullptr) options_.operators = &kernels::host::operators();
}

Context::Context(ContextOptions options, std::shared_ptr<kernels::host::Engine> engine)
    : options_(std::move(options)), engine_(std::move(engine)) {}

std::unique_ptr<Context> Context::of_other_lane() const {
    return std::unique_ptr<Context>(new Context(options_, engine_));
}

Context::~Context() = default;

kernels::cuda::Engine& Context::cuda() {
    if (options_.cuda == nullptr) {
        throw UsageError("a CUDA operator was called in the context of a host rank");
    }
    return *options_.cuda;
}

}  // namespace vocabpipe
