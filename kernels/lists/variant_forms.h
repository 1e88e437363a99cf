// SPDX-License-Identifier: Apache-2.0
// The objects of variants that go into messages and files.
#ifndef KERNELS_LISTS_VARIANT_FORMS_H_
#define KERNELS_LISTS_VARIANT_FORMS_H_

namespace millrace {

// Makes the forms of numbers, tensors, lists and optionals known to all kernels
// (kernels/common/variant_codec.h).
void AddVariantForms();

}  // namespace millrace

#endif  // KERNELS_LISTS_VARIANT_FORMS_H_
