// SPDX-License-Identifier: Apache-2.0
// Frames of GIF files (GIF89a specification, CompuServe 1990).
#ifndef IO_GIF_H_
#define IO_GIF_H_

#include <string_view>

#include "io/image_size.h"
#include "millrace/status.h"

namespace millrace {

// All frames as RGB, or the first one alone, each as large as the largest. What a frame does not
// cover, or has transparent, is as in the frame before, black in the first one: that is how
// TensorFlow shows them, whatever a frame's disposal says. InvalidArgument for files that are
// damaged or cut off, and for more than kMostImageBytes.
Status DecodeGif(std::string_view file, bool first_only, const PixelRoom& room);

}  // namespace millrace

#endif  // IO_GIF_H_
