// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/context.hpp"

#include "kernels/host/engine.hpp"

namespace vocabpipe {

Context::Context(ContextOptions options)
    : options_(std::move(options)),
      engine_(std::make_unique<kernels::host::Engine>(options_.threads)) {}

Context::~Context() = default;

}  // namespace vocabpipe
