"""float16 to float32 and back for processors that have no instruction for it.

LLVM calls these two functions then, by names and with arguments as compilers have agreed. They are
exact, and round to nearest even; a NaN stays one.
"""

from __future__ import annotations

from anydim.targets.processor import Processor

NAME = "halves"


def has_halves(processor: Processor) -> bool:
    """Whether LLVM has instructions for these conversions."""
    return processor.architecture != "x86_64" or "f16c" in processor.has


HALVES_TEXT = """
define float @__extendhfsf2(half %x) nounwind {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %sign = shl i32 %bits, 16
  %sign.bit = and i32 %sign, -2147483648
  %moved = shl i32 %magnitude, 13
  %normal = add i32 %moved, 939524096
  %count = sitofp i32 %magnitude to float
  %tiny = fmul float %count, 0x3E70000000000000
  %small = bitcast float %tiny to i32
  %is.small = icmp ult i32 %magnitude, 1024
  %finite = select i1 %is.small, i32 %small, i32 %normal
  %infinite = or i32 %moved, 2139095040
  %quiet = or i32 %infinite, 4194304
  %is.nan = icmp ugt i32 %magnitude, 31744
  %special = select i1 %is.nan, i32 %quiet, i32 %infinite
  %is.special = icmp uge i32 %magnitude, 31744
  %whole = select i1 %is.special, i32 %special, i32 %finite
  %signed = or i32 %whole, %sign.bit
  %result = bitcast i32 %signed to float
  ret float %result
}

define half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %sign = lshr i32 %bits, 16
  %sign.bit = and i32 %sign, 32768
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %rebased = add i32 %magnitude, -939520001
  %rounded = add i32 %rebased, %odd
  %normal = lshr i32 %rounded, 13
  %over = icmp ugt i32 %normal, 31744
  %bounded = select i1 %over, i32 31744, i32 %normal
  %value = bitcast i32 %magnitude to float
  %sum = fadd float %value, 5.0e-1
  %sum.bits = bitcast float %sum to i32
  %units = sub i32 %sum.bits, 1056964608
  %is.small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is.small, i32 %units, i32 %bounded
  %payload = and i32 %shifted, 1023
  %quiet = or i32 %payload, 32256
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %code = select i1 %is.nan, i32 %quiet, i32 %finite
  %signed = or i32 %code, %sign.bit
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""
