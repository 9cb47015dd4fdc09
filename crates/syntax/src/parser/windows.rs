//! Windows, their frames, and the items of ORDER BY.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    Frame, FrameBound, FrameExclusion, FrameUnit, NullsOrder, SortItem, SortOrder, WindowSpec,
};
use firn_base::{Result, SqlState};

const WINDOWING_ERROR: SqlState = SqlState::new("42P20");

impl Parser<'_> {
    /// `(…)` of OVER and WINDOW.
    pub(super) fn window_spec(&mut self) -> Result<Box<WindowSpec>> {
        let start = self.start();
        self.expect_symbol(b'(')?;
        let span = self.span_from(start);
        let (partition_by, order_by) = (Vec::new(), Vec::new());
        let mut window = Box::new(WindowSpec { span, base: None, partition_by, order_by, frame: None });
        // These words begin a clause and are no name here, although they are not reserved.
        let is_clause = matches!(
            self.keyword(),
            Some(Keyword::Partition | Keyword::Range | Keyword::Rows | Keyword::Groups)
        );
        if !is_clause && Self::is_name(self.kind()) {
            window.base = Some(self.name()?);
        }
        if self.accept_keyword(Keyword::Partition) {
            self.expect_keyword(Keyword::By)?;
            window.partition_by = self.exprs()?;
        }
        window.order_by = self.optional_order_by()?;
        window.frame = self.optional_frame()?;
        self.expect_symbol(b')')?;
        window.span = self.span_from(start);
        Ok(window)
    }

    fn optional_frame(&mut self) -> Result<Option<Frame>> {
        let span_start = self.start();
        let unit = match self.keyword() {
            Some(Keyword::Range) => FrameUnit::Range,
            Some(Keyword::Rows) => FrameUnit::Rows,
            Some(Keyword::Groups) => FrameUnit::Groups,
            _ => return Ok(None),
        };
        self.advance();
        let (start, end);
        let mut at = self.start();
        // Before an operator BETWEEN is the name of a column.
        let next = self.peek(1);
        let is_column = matches!(next, TokenKind::DoubleColon | TokenKind::Symbol(b'.' | b'['))
            || (Self::is_operator(next)
                && !matches!(next, TokenKind::Operator | TokenKind::Symbol(b'+' | b'-')));
        if !is_column && self.accept_keyword(Keyword::Between) {
            at = self.start();
            start = self.frame_bound()?;
            self.expect_keyword(Keyword::And)?;
            let end_at = self.start();
            end = Some(self.frame_bound()?);
            self.check_frame(&start, end.as_ref(), at, end_at)?;
        } else {
            start = self.frame_bound()?;
            end = None;
            self.check_frame(&start, None, at, at)?;
        }
        let mut exclusion = FrameExclusion::NoOthers;
        if self.accept_keyword(Keyword::Exclude) {
            exclusion = match self.keyword() {
                Some(Keyword::Current) => {
                    self.advance();
                    self.expect_keyword(Keyword::Row)?;
                    FrameExclusion::CurrentRow
                }
                Some(Keyword::Group) => {
                    self.advance();
                    FrameExclusion::Group
                }
                Some(Keyword::Ties) => {
                    self.advance();
                    FrameExclusion::Ties
                }
                _ => {
                    self.expect_keywords(&[Keyword::No, Keyword::Others])?;
                    FrameExclusion::NoOthers
                }
            };
        }
        Ok(Some(Frame { span: self.span_from(span_start), unit, start, end, exclusion }))
    }

    fn check_frame(
        &mut self,
        start: &FrameBound,
        end: Option<&FrameBound>,
        at: u32,
        end_at: u32,
    ) -> Result<()> {
        use FrameBound::*;
        let (message, at) = match (start, end) {
            (UnboundedFollowing, _) => ("frame start cannot be UNBOUNDED FOLLOWING", at),
            (Following(_), None) => ("frame starting from following row cannot end with current row", at),
            (_, Some(UnboundedPreceding)) => ("frame end cannot be UNBOUNDED PRECEDING", end_at),
            (CurrentRow, Some(Preceding(_))) => {
                ("frame starting from current row cannot have preceding rows", end_at)
            }
            (Following(_), Some(Preceding(_) | CurrentRow)) => {
                ("frame starting from following row cannot have preceding rows", end_at)
            }
            _ => return Ok(()),
        };
        self.error(WINDOWING_ERROR, message, at)
    }

    fn frame_bound(&mut self) -> Result<FrameBound> {
        if self.at_keyword(Keyword::Unbounded) {
            if self.next_is(Keyword::Preceding) {
                self.advance();
                self.advance();
                return Ok(FrameBound::UnboundedPreceding);
            }
            if self.next_is(Keyword::Following) {
                self.advance();
                self.advance();
                return Ok(FrameBound::UnboundedFollowing);
            }
        }
        if self.at_keyword(Keyword::Current) && self.next_is(Keyword::Row) {
            self.advance();
            self.advance();
            return Ok(FrameBound::CurrentRow);
        }
        let offset = self.expr()?;
        if self.accept_keyword(Keyword::Preceding) {
            return Ok(FrameBound::Preceding(offset));
        }
        self.expect_keyword(Keyword::Following)?;
        Ok(FrameBound::Following(offset))
    }

    /// An item of ORDER BY.
    pub(super) fn sort_item(&mut self) -> Result<SortItem> {
        let value = self.expr()?;
        let order = if self.accept_keyword(Keyword::Using) {
            SortOrder::Using(self.operator()?)
        } else {
            self.sort_direction()
        };
        Ok(SortItem { value, order, nulls: self.nulls_order()? })
    }

    /// ASC, DESC or nothing.
    pub(crate) fn sort_direction(&mut self) -> SortOrder {
        if self.accept_keyword(Keyword::Asc) {
            SortOrder::Ascending
        } else if self.accept_keyword(Keyword::Desc) {
            SortOrder::Descending
        } else {
            SortOrder::Default
        }
    }

    /// NULLS FIRST, NULLS LAST or nothing.
    pub(crate) fn nulls_order(&mut self) -> Result<NullsOrder> {
        if !self.at_keyword(Keyword::Nulls) {
            return Ok(NullsOrder::Default);
        }
        if self.next_is(Keyword::First) {
            self.advance();
            self.advance();
            return Ok(NullsOrder::First);
        }
        if self.next_is(Keyword::Last) {
            self.advance();
            self.advance();
            return Ok(NullsOrder::Last);
        }
        Ok(NullsOrder::Default)
    }
}
