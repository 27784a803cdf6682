// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/softmax_type.hpp"

#include "src/support/names_of.hpp"

namespace vocabpipe {

std::string_view to_string(SoftmaxType type) {
    return type == SoftmaxType::vanilla ? "vanilla" : "learnable";
}

SoftmaxType softmax_type_from(std::string_view name) {
    return value_named("--softmax-type", name, {SoftmaxType::vanilla, SoftmaxType::learnable});
}

}  // namespace vocabpipe
