// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_source.hpp"

#include <stdexcept>

namespace vocabpipe {

int64_t TokenSource::document_start(int64_t /*document*/) const {
    throw std::logic_error(info().name + ": has no list of documents");
}

}  // namespace vocabpipe
