// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Where a run's tokens come from; the comments name the flags of train_gpt.
struct DataOptions {
    /// --data-path: one NAME as open_tokens() takes it, or WEIGHT NAME pairs of a blend.
    std::vector<std::string> path;
    std::string format = "auto";  // --data-format, of all files
    std::string split;            // --split TRAIN,VALID,TEST of --data-path; empty: all is train
    /// --train-data-path, --valid-data-path, --test-data-path: instead of path and split.
    std::vector<std::string> train_path, valid_path, test_path;
    std::string subset;   // --data-subset, the chosen training samples; empty: all
    std::string columns;  // --columns, numbers of the training samples' tokens; empty: none

    int64_t eod_token_id = -1;          // --eod-token-id; -1: as the data says
    bool eod_mask_loss = false;         // --eod-mask-loss
    bool reset_attention_mask = false;  // --reset-attention-mask
    bool reset_position_ids = false;    // --reset-position-ids

    /// --packing-strategy: wrapped cuts samples from the stream, bfd packs whole documents, padded
    /// makes a sample of each.
    std::string packing_strategy = "wrapped";
    [[nodiscard]] bool has_whole_documents() const { return packing_strategy != "wrapped"; }

    /// --length-buckets, of the training samples: lengths with commas between them, or auto. Empty:
    /// all are as long as --seq-length.
    std::string length_buckets;
};

}  // namespace vocabpipe
