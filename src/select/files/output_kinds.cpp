// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/output_kinds.hpp"

#include "src/select/files/tensor_input.hpp"
#include "vocabpipe/error.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

namespace {

OutputKind tensors_of(std::string_view name, std::string_view format) {
    return {name, [format](const std::string& path) {
                try {
                    const TensorInput file(path, format);
                    return true;
                } catch (const InputFileError&) {
                    return false;
                }
            }};
}

}  // namespace

OutputKind scores_output() {
    return tensors_of("a file of vocabpipe select score", "vocabpipe scores 1");
}
OutputKind graph_output() {
    return tensors_of("a file of vocabpipe select knn", "vocabpipe graph 1");
}
OutputKind subset_output() {
    return tensors_of("a file of vocabpipe select run", "vocabpipe subset 1");
}

}  // namespace vocabpipe
