//! The worker, which talks to peers in a thread of its own: keys never wait for a network.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::model::{LINES_MAX, Shown, ShownPage};
use crate::chirp::Chirp;
use crate::error::Error;
use crate::list::AppendMode;
use crate::name::UserName;
use crate::remote::Remote;
use crate::signature::UserKey;
use crate::text::Text;
use crate::timeline::{self, Found, Line, Timeline, rest, seals};

/// Least pause between two looks for new chirps.
const LOOK: Duration = Duration::from_millis(800);
/// Time after which the chirps read so far are shown, and again after as long.
const BATCH: Duration = Duration::from_millis(400);
/// Number of each user's chirps that are read.
const EACH: usize = 100;
const RETRY: Duration = Duration::from_secs(1);

/// Settings of the start.
#[derive(Clone)]
pub struct Start {
    /// Addresses of peers: `HOST:PORT`.
    pub addresses: Vec<String>,
    /// The peers' password.
    pub password: Option<String>,
    /// The way of appending.
    pub mode: AppendMode,
    /// The user's name; `None`: the person is asked.
    pub user: Option<UserName>,
    /// The key that signs posts.
    pub key: Option<std::sync::Arc<UserKey>>,
}

/// A request of the person at the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Act as this user, which has signed up.
    Be(UserName),
    SignUp(UserName),
    Post(Text),
    Follow(UserName),
    Unfollow(UserName),
    Page(UserName),
}

/// A report of the worker.
#[derive(Debug)]
pub(crate) enum News {
    Connected(String),
    /// The user's name from now on.
    Is(UserName),
    Lines(Vec<Shown>),
    /// All users have been read once.
    Read,
    Following(Vec<UserName>),
    Page(Box<ShownPage>),
    /// The request is done.
    Done(Ask, String),
    /// The request failed.
    Failed(Ask, Error),
    /// A problem without a request.
    Trouble(Error),
    /// The problem is over.
    Recovered,
}

/// The other side of the channel has gone.
struct Gone;

/// Works until the other side has gone.
pub(crate) fn work(start: Start, asks: Receiver<Ask>, tell: Sender<News>) {
    #[expect(clippy::disallowed_methods, reason = "as many requests as a person types")]
    let (send, receive) = unbounded_channel();
    // A thread has to wait for requests that come from a thread.
    std::thread::spawn(move || {
        while let Ok(ask) = asks.recv() {
            if send.send(ask).is_err() {
                return;
            }
        }
    });
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => drop(runtime.block_on(Worker { start, tell }.run(receive))),
        Err(error) => drop(tell.send(News::Trouble(Error::Refused(format!("cannot start: {error}"))))),
    }
}

struct Worker {
    start: Start,
    tell: Sender<News>,
}

impl Worker {
    fn tell(&self, news: News) -> Result<(), Gone> {
        self.tell.send(news).map_err(|_| Gone)
    }

    async fn run(mut self, mut asks: UnboundedReceiver<Ask>) -> Result<(), Gone> {
        let chirp = loop {
            match Remote::connect(&self.start.addresses, self.start.password.as_deref()).await {
                Ok(remote) => break Chirp::new(remote, self.start.mode),
                Err(error) => self.tell(News::Trouble(error))?,
            }
            tokio::time::sleep(RETRY).await;
        };
        self.tell(News::Connected(chirp.store().address()))?;
        self.tell(News::Recovered)?;
        // The first user has to have signed up like any other.
        let (mut next, mut user) = (self.start.user.take().map(Ask::Be), None);
        loop {
            if let Some(ask) = next.take()
                && let Some(other) = self.become_user(&chirp, ask).await?
            {
                user = Some(other);
            }
            // Without a user there is nothing to look at.
            next = Some(match &user {
                None => asks.recv().await.ok_or(Gone)?,
                Some(user) => self.serve(&chirp, user, &mut asks).await?,
            });
        }
    }

    /// Takes or uses a name, and returns it where that succeeds.
    async fn become_user(&self, chirp: &Chirp<Remote>, ask: Ask) -> Result<Option<UserName>, Gone> {
        let became = match &ask {
            Ask::Be(name) => chirp.profile(name).await.map(|profile| profile.name),
            Ask::SignUp(name) => chirp.sign_up(name, self.start.key.as_deref()).await.map(|()| name.clone()),
            _ => return Ok(None),
        };
        match became {
            Ok(name) => {
                self.tell(News::Is(name.clone()))?;
                Ok(Some(name))
            }
            Err(error) => {
                self.tell(News::Failed(ask, error))?;
                Ok(None)
            }
        }
    }

    /// Looks for new chirps, and carries out requests; ends with a request that is not one of this user. No part waits
    /// for another: each may take long where a part of the network is down.
    async fn serve(
        &self,
        chirp: &Chirp<Remote>,
        user: &UserName,
        asks: &mut UnboundedReceiver<Ask>,
    ) -> Result<Ask, Gone> {
        #[expect(clippy::disallowed_methods, reason = "as many requests as a person types")]
        let (change, changes) = unbounded_channel();
        let (visit, visited) = watch::channel(None);
        tokio::select! {
            ask = route(asks, &change, &visit) => ask,
            Err(gone) = self.look_on(chirp, user) => Err(gone),
            Err(gone) = self.change_on(chirp, user, changes) => Err(gone),
            Err(gone) = self.visit_on(chirp, visited) => Err(gone),
        }
    }

    /// Looks again and again.
    async fn look_on(&self, chirp: &Chirp<Remote>, user: &UserName) -> Result<(), Gone> {
        let (mut timeline, mut said, mut unsure) = (None, None, Vec::new());
        loop {
            let since = Instant::now();
            let problem = {
                let mut look = pin!(self.look(chirp, user, &mut timeline, &mut unsure));
                loop {
                    tokio::select! {
                        looked = &mut look => break looked?,
                        // A lack of a connection is reported long before patience is over.
                        () = tokio::time::sleep(RETRY) => {
                            if let Some(trouble) = chirp.store().trouble() {
                                self.say(&mut said, trouble)?;
                            }
                        }
                    }
                }
            };
            let pause = rest(LOOK, since.elapsed(), problem.is_none());
            match problem {
                Some(problem) => self.say(&mut said, problem)?,
                None if said.take().is_some() => {
                    self.tell(News::Connected(chirp.store().address()))?;
                    self.tell(News::Recovered)?;
                }
                None => {}
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reports a problem, unless it is the last one that was reported.
    fn say(&self, said: &mut Option<String>, trouble: Error) -> Result<(), Gone> {
        let text = trouble.to_string();
        if said.as_ref() == Some(&text) {
            return Ok(());
        }
        *said = Some(text);
        self.tell(News::Trouble(trouble))
    }

    /// Looks once: at all lists, where nothing has been read yet. Returns the problem, if there is one. `unsure` has
    /// the lines with signatures that could not be checked yet.
    async fn look(
        &self,
        chirp: &Chirp<Remote>,
        user: &UserName,
        timeline: &mut Option<Timeline>,
        unsure: &mut Vec<Line>,
    ) -> Result<Option<Error>, Gone> {
        let again = std::mem::take(unsure);
        unsure.extend(self.show(chirp, again).await?);
        let Some(timeline) = timeline else {
            let opened = match Timeline::open(chirp, user).await {
                Ok(opened) => timeline.insert(opened),
                Err(error) => return Ok(Some(error)),
            };
            self.tell(News::Following(opened.following().users().cloned().collect()))?;
            let left = RefCell::new(unsure);
            let show = async |lines| {
                let unsure = self.show(chirp, lines).await?;
                left.borrow_mut().extend(unsure);
                Ok(())
            };
            let failed = opened.read_all(chirp, (EACH, LINES_MAX), BATCH, show).await?;
            self.tell(News::Read)?;
            return Ok(failed.into_iter().next_back());
        };
        let Found { lines, follows_others, errors } = match timeline.poll(chirp, EACH).await {
            Ok(found) => found,
            Err(error) => return Ok(Some(error)),
        };
        if follows_others {
            self.tell(News::Following(timeline.following().users().cloned().collect()))?;
        }
        unsure.extend(self.show(chirp, lines).await?);
        unsure.drain(..unsure.len().saturating_sub(LINES_MAX));
        Ok(errors.into_iter().next())
    }

    /// Shows these lines, and returns those with signatures that could not be checked.
    async fn show(&self, chirp: &Chirp<Remote>, lines: Vec<Line>) -> Result<Vec<Line>, Gone> {
        if lines.is_empty() {
            return Ok(lines);
        }
        let shown = with_seals(chirp, lines).await;
        let unsure = shown.iter().filter(|shown| shown.seal.is_none()).map(|shown| shown.line.clone()).collect();
        self.tell(News::Lines(shown))?;
        Ok(unsure)
    }

    /// Makes changes, in the order of the requests.
    async fn change_on(
        &self,
        chirp: &Chirp<Remote>,
        user: &UserName,
        mut changes: UnboundedReceiver<Ask>,
    ) -> Result<(), Gone> {
        while let Some(ask) = changes.recv().await {
            let done = match &ask {
                Ask::Post(text) => chirp.post(user, text, self.start.key.as_deref()).await.map(|_| "posted".to_owned()),
                Ask::Follow(other) => chirp.follow(user, other).await.map(|is_new| match is_new {
                    true => format!("you follow {other} from now on"),
                    false => format!("you follow {other} already"),
                }),
                Ask::Unfollow(other) => {
                    chirp.unfollow(user, other).await.map(|()| format!("you do not follow {other} any more"))
                }
                Ask::Be(_) | Ask::SignUp(_) | Ask::Page(_) => continue,
            };
            match done {
                Ok(text) => self.tell(News::Done(ask, text))?,
                Err(error) => self.tell(News::Failed(ask, error))?,
            }
        }
        std::future::pending().await
    }

    /// Reads the page of the last request.
    async fn visit_on(
        &self,
        chirp: &Chirp<Remote>,
        mut visited: watch::Receiver<Option<UserName>>,
    ) -> Result<(), Gone> {
        loop {
            let asked = visited.borrow_and_update().clone();
            let read = async {
                match asked {
                    None => std::future::pending().await,
                    Some(user) => self.visit(chirp, user).await,
                }
            };
            tokio::select! {
                read = read => {
                    read?;
                    visited.changed().await.map_err(|_| Gone)?;
                }
                changed = visited.changed() => changed.map_err(|_| Gone)?,
            }
        }
    }

    async fn visit(&self, chirp: &Chirp<Remote>, user: UserName) -> Result<(), Gone> {
        match timeline::Page::read(chirp, &user, EACH).await {
            Ok(timeline::Page { profile, count, follows, lines }) => {
                let lines = with_seals(chirp, lines).await;
                self.tell(News::Page(Box::new(ShownPage { profile, count, follows, lines })))
            }
            Err(error) => self.tell(News::Failed(Ask::Page(user), error)),
        }
    }
}

/// Sends each request to its part; ends with a request that is not one of the user.
async fn route(
    asks: &mut UnboundedReceiver<Ask>,
    change: &UnboundedSender<Ask>,
    visit: &watch::Sender<Option<UserName>>,
) -> Result<Ask, Gone> {
    loop {
        match asks.recv().await.ok_or(Gone)? {
            ask @ (Ask::Be(_) | Ask::SignUp(_)) => return Ok(ask),
            Ask::Page(user) => drop(visit.send_replace(Some(user))),
            ask => change.send(ask).map_err(|_| Gone)?,
        }
    }
}

async fn with_seals(chirp: &Chirp<Remote>, lines: Vec<Line>) -> Vec<Shown> {
    let seals = seals(chirp, &lines).await;
    lines.into_iter().zip(seals).map(|(line, seal)| Shown { line, seal }).collect()
}

#[cfg(test)]
#[path = "worker_test.rs"]
mod tests;
